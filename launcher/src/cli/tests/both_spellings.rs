//! Every option is read with `-` as well as `_`.

use super::*;

#[test]
fn every_option_with_a_value_is_read_in_both_spellings() {
    let values = [
        ("nnodes", "2"),
        ("nproc-per-node", "3"),
        ("rdzv-backend", "c10d"),
        ("rdzv-endpoint", "h:1"),
        ("rdzv-id", "i"),
        ("rdzv-conf", "a=b"),
        ("max-restarts", "4"),
        ("monitor-interval", "0.5"),
        ("start-method", "fork"),
        ("event-log-handler", "console"),
        ("role", "r"),
        ("log-dir", "l"),
        ("redirects", "1"),
        ("tee", "2"),
        ("local-ranks-filter", "0"),
        ("duplicate-stdout-filters", "o"),
        ("duplicate-stderr-filters", "e"),
        ("node-rank", "5"),
        ("master-addr", "m"),
        ("master-port", "6"),
        ("local-addr", "n"),
        ("logs-specs", "s"),
        ("numa-binding", "core-complex"),
        ("signals-to-handle", "SIGTERM"),
        ("shutdown-timeout", "7"),
        ("log-line-prefix-template", "t"),
        ("slurm", "off"),
        ("kubernetes", "off"),
        ("failure-policy", "isolate"),
        ("log-format", "json"),
    ];
    for join in ["-", "_"] {
        let words: Vec<String> = values
            .iter()
            .flat_map(|(name, value)| {
                [
                    format!("--{}", name.replace('-', join)),
                    (*value).to_owned(),
                ]
            })
            .collect();
        let words: Vec<&str> = words
            .iter()
            .map(String::as_str)
            .chain(["train.py"])
            .collect();
        let cli = cli(&words);
        assert_eq!(
            (
                cli.nnodes.as_str(),
                cli.nproc_per_node.as_str(),
                cli.node_rank
            ),
            ("2", "3", 5)
        );
        assert_eq!(
            (cli.rdzv_backend.as_str(), cli.rdzv_endpoint.as_str()),
            ("c10d", "h:1")
        );
        assert_eq!(
            (
                cli.rdzv_id.as_str(),
                cli.rdzv_conf.as_str(),
                cli.role.as_str()
            ),
            ("i", "a=b", "r")
        );
        assert_eq!(
            (cli.max_restarts, cli.monitor_interval, cli.shutdown_timeout),
            (4, 0.5, Some(7))
        );
        assert_eq!(
            (cli.start_method.as_str(), cli.event_log_handler.as_str()),
            ("fork", "console")
        );
        assert_eq!(
            (
                cli.redirects.as_str(),
                cli.tee.as_str(),
                cli.local_ranks_filter.as_str()
            ),
            ("1", "2", "0")
        );
        assert_eq!(
            (
                cli.duplicate_stdout_filters.as_str(),
                cli.duplicate_stderr_filters.as_str()
            ),
            ("o", "e")
        );
        assert_eq!(
            (cli.master_addr.as_deref(), cli.master_port),
            (Some("m"), Some(6))
        );
        assert_eq!(
            (cli.local_addr.as_deref(), cli.log_dir),
            (Some("n"), Some(PathBuf::from("l")))
        );
        assert_eq!(
            (cli.logs_specs.as_deref(), cli.numa_binding.as_deref()),
            (Some("s"), Some("core-complex"))
        );
        assert_eq!(
            (
                cli.signals_to_handle.as_str(),
                cli.log_line_prefix_template.as_deref()
            ),
            ("SIGTERM", Some("t"))
        );
        assert_eq!(
            (cli.slurm.as_str(), cli.kubernetes.as_str()),
            ("off", "off")
        );
    }
}

#[test]
fn every_flag_is_read_in_both_spellings() {
    for flags in [
        "--no-python --run-path --virtual-local-rank",
        "--no_python --run_path --virtual_local_rank",
    ] {
        let words: Vec<&str> = flags
            .split(' ')
            .chain(["--standalone", "-m", "--dry-run", "x"])
            .collect();
        let cli = cli(&words);
        assert!(
            cli.no_python
                && cli.run_path
                && cli.virtual_local_rank
                && cli.standalone
                && cli.module
                && cli.dry_run.as_deref() == Some("table")
        );
    }
}
