def pytest_configure(config):
    config.addinivalue_line("markers", "slow: downloads gigabytes once more")
