"""What this project asks of the suite: the quick sample that `make test` runs, and the one test that is not for rrun.

A plugin and no conftest.py, because that one is the suite's, which is kept byte for byte.
"""

import os
import shlex

import pytest

# One or two of each kind, the quickest that would notice if it broke: a minute on a busy machine with two cores.
QUICK = {
    "test_cli.py": ["test_no_args_is_usage_error", "test_help_lists_every_option", "test_everything_after_script_is_verbatim",
                    "test_all_underscore_spellings", "test_equals_and_glued_short_forms",
                    "test_ambiguous_abbreviation_rejected", "test_cli_beats_pet_env", "test_module"],
    "test_env.py": ["test_exact_set_of_added_variables", "test_standalone", "test_omp_default_and_warning",
                    "test_error_file_path", "test_virtual_local_rank", "test_process_topology"],
    "test_fail.py": ["test_signal_death", "test_error_file_traceback_in_report", "test_root_cause_is_oldest_timestamp",
                     "test_restart_kills_survivors_first"],
    "test_logs.py": ["test_passthrough_and_tmp_layout", "test_redirect_all", "test_filter_with_tee_keeps_files",
                     "test_attempt_dirs"],
    "test_signals.py": ["test_custom_signal_list", "test_worker_last_output_is_teed_on_sigterm"],
    "test_static.py": ["test_two_nodes_ranks", "test_agent_keys_in_the_store", "test_bad_clients_do_not_hurt_the_store"],
    "test_c10d.py": ["test_late_joiner_restarts_everybody", "test_worker_failure_restarts_both_nodes"],
    "test_scale.py": ["test_64_ranks"],
    "test_rrun_state.py": ["test_rrun_state_key_in_the_store"],
    "test_rrun_report.py": ["test_rrun_repeats_the_end_of_a_redirected_stderr", "test_rrun_events_are_json_lines"],
}

# By design: the state of an elastic launch is our own JSON, without timestamps; test_rrun_state.py looks into it.
NOT_FOR_RRUN = {"test_c10d.py": ["test_state_key_in_the_store"]}

LAUNCHER = shlex.split(os.environ.get("LAUNCHER", "torchrun"))


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: in the sample that `make test` runs")
    config.addinivalue_line("markers", "rrun: asks for what only rrun has")


def pytest_collection_modifyitems(items):
    is_rrun = os.path.basename(LAUNCHER[0]) == "rrun"
    for item in items:
        if is_named(item, QUICK):
            item.add_marker(pytest.mark.quick)
        if is_rrun and is_named(item, NOT_FOR_RRUN):
            item.add_marker(pytest.mark.skip(reason="rrun keeps its own JSON in the store: see test_rrun_state.py"))
        if not is_rrun and item.get_closest_marker("rrun"):
            item.add_marker(pytest.mark.skip(reason="only rrun has it"))


def is_named(item, table):
    return item.originalname in table.get(item.path.name, [])
