def pytest_configure(config):
    config.addinivalue_line("markers", "slow: installs torch, which has gigabytes")
