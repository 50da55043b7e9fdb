"""What this project asks of the suite: the quick sample that `make test` runs, and the two tests that are not for rrun.

A plugin and no conftest.py, because that one is the suite's, which is kept byte for byte.
"""

import os
import shlex

import pytest

# What `tests/launch` and `tests/nodes` leave to this suite, and one or two of each other kind: none takes more than four
# seconds. CI runs no other test of the suite, so a claim that only this suite makes has to be here.
QUICK = {
    "test_cli.py": ["test_no_args_is_usage_error", "test_help_lists_every_option", "test_everything_after_script_is_verbatim",
                    "test_all_underscore_spellings", "test_equals_and_glued_short_forms", "test_unique_prefix_abbreviation",
                    "test_cli_beats_pet_env", "test_pet_flag_zero_is_false",
                    "test_pet_no_python_and_redirects", "test_pet_bad_int_is_usage_error",
                    "test_bad_choices_and_types_exit_2", "test_module", "test_no_python_path_lookup",
                    "test_python_is_run_unbuffered", "test_local_rank_macro", "test_dollar_dollar_is_collapsed",
                    "test_nproc_cpu_and_auto", "test_missing_script_is_a_worker_failure", "test_double_dash_before_script",
                    "test_relative_script_and_cwd"],
    "test_env.py": ["test_exact_set_of_added_variables", "test_standalone", "test_omp_default_and_warning",
                    "test_omp_untouched_for_one_proc", "test_omp_kept_when_set", "test_nccl_async_error_handling_is_kept",
                    "test_error_file_path", "test_cuda_visible_devices_untouched", "test_virtual_local_rank",
                    "test_virtual_local_rank_without_list", "test_role_rdzv_id_and_signals", "test_static_endpoint_sets_master",
                    "test_disable_shared_store", "test_process_topology", "test_timer_file_is_exported",
                    "test_two_standalone_jobs_side_by_side"],
    "test_fail.py": ["test_signal_death", "test_success_is_zero_and_quiet", "test_static_master_port_is_stable_across_restarts",
                     "test_error_file_traceback_in_report", "test_root_cause_is_oldest_timestamp", "test_run_path_failure",
                     "test_restart_kills_survivors_first", "test_shell_pipeline_worker_exit_code",
                     "test_failure_terminates_siblings", "test_siblings_get_sigterm_then_clean_exit",
                     "test_early_success_does_not_stop_others"],
    "test_logs.py": ["test_passthrough_and_tmp_layout", "test_redirect_all", "test_filter_with_tee_keeps_files",
                     "test_duplicate_filters", "test_prefix_template", "test_log_dir_dev_null", "test_attempt_dirs",
                     "test_log_dir_reused_gets_own_subdirs", "test_tee_unterminated_last_line", "test_tee_is_live",
                     "test_tee_bad_utf8", "test_tee_volume_and_order", "test_tee_of_failing_worker_is_complete"],
    "test_signals.py": ["test_signal_reaches_grandchildren", "test_custom_signal_list", "test_worker_last_output_is_teed_on_sigterm",
                        "test_no_restart_after_signal", "test_launcher_sigkill_orphans_workers"],
    "test_static.py": ["test_two_nodes_ranks", "test_agent_keys_in_the_store", "test_bad_clients_do_not_hurt_the_store",
                       "test_port_in_use", "test_heterogeneous_nproc", "test_static_restart_is_local_to_the_node"],
    "test_c10d.py": ["test_late_joiner_restarts_everybody", "test_worker_failure_restarts_both_nodes"],
    "test_scale.py": ["test_64_ranks", "test_64_ranks_tee"],
    "test_rrun_state.py": ["test_rrun_state_key_in_the_store", "test_rrun_state_tells_a_torchrun_who_is_at_work"],
    "test_rrun_report.py": ["test_rrun_repeats_the_end_of_a_redirected_stderr", "test_rrun_events_are_json_lines",
                            "test_rrun_tells_what_ranks_used", "test_rrun_names_the_first_failure_before_the_box"],
}

# By design: the state of an elastic launch is our own JSON, without timestamps; test_rrun_state.py looks into it. And
# `--nproc`, which torchrun finds ambiguous between two spellings of one option, is that option.
NOT_FOR_RRUN = {"test_c10d.py": ["test_state_key_in_the_store"], "test_cli.py": ["test_ambiguous_abbreviation_rejected"]}

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
            item.add_marker(pytest.mark.skip(reason="rrun differs by design: see NOT_FOR_RRUN"))
        if not is_rrun and item.get_closest_marker("rrun"):
            item.add_marker(pytest.mark.skip(reason="only rrun has it"))


def is_named(item, table):
    return item.originalname in table.get(item.path.name, [])
