//! Tests of the choice, as tables of requests.

use super::*;

const NO_DRIVER: &str = "no NVIDIA driver: /proc/driver/nvidia is missing";

fn gpus(count: usize) -> VisibleDevices {
    VisibleDevices::Cuda { count }
}

fn none() -> VisibleDevices {
    VisibleDevices::None {
        reason: NO_DRIVER.to_owned(),
    }
}

/// Parses `rank/world id device config`, with `-` for an absent value.
fn request(text: &str) -> DeviceRequest {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (rank, world) = words[0].split_once('/').unwrap();
    let given = |word: &str| (word != "-").then(|| word.to_owned());
    DeviceRequest {
        local_rank: rank.parse().ok(),
        local_world_size: world.parse().unwrap(),
        policy_device_id: words[1].parse().ok(),
        policy_device: given(words[2]),
        config_device: given(words[3]),
        placed: None,
    }
}

fn decide(text: &str, visible: VisibleDevices) -> (String, String, Vec<String>) {
    let decision = resolve(&request(text), &visible).unwrap();
    (name(decision.device), decision.reason, decision.warnings)
}

#[test]
fn one_local_rank_follows_the_weightiest_wish() {
    let table = [
        ("0/1 - - -", "cuda:0: the first of 8 visible devices"),
        ("-/1 - - -", "cuda:0: the first of 8 visible devices"),
        ("0/1 3 - -", "cuda:3: the policy device id asks for it"),
        ("0/1 3 cuda -", "cuda:3: the policy device id asks for it"),
        ("0/1 3 - cuda:5", "cuda:3: the policy device id asks for it"),
        ("0/1 - cuda:1 -", "cuda:1: the policy device asks for it"),
        ("0/1 - cuda:1 cuda", "cuda:1: the policy device asks for it"),
        ("0/1 - cuda cuda:5", "cuda:0: the policy device asks for it"),
        ("0/1 - - cuda:5", "cuda:5: the policy's config asks for it"),
        ("0/1 - - cuda", "cuda:0: the policy's config asks for it"),
        ("0/1 - - cpu", "cpu: the policy's config asks for it"),
        ("0/1 - cpu cuda:5", "cpu: the policy device asks for it"),
        ("-/4 2 - -", "cuda:2: the policy device id asks for it"),
    ];
    for (text, reason) in table {
        let (device, found, _) = decide(text, gpus(8));
        assert_eq!(found, reason, "{text}");
        assert!(reason.starts_with(&device), "{text}");
    }
}

#[test]
fn several_local_ranks_take_their_own_device() {
    let table = [
        (
            "3/4 - - -",
            gpus(4),
            "cuda:3: LOCAL_RANK=3 of 4 local ranks",
        ),
        (
            "3/4 - - -",
            gpus(1),
            "cuda:0: the only visible device, LOCAL_RANK=3 of 4 local ranks",
        ),
        (
            "3/4 - - cuda",
            gpus(8),
            "cuda:3: LOCAL_RANK=3 of 4 local ranks",
        ),
        (
            "3/4 - cuda:3 -",
            gpus(8),
            "cuda:3: LOCAL_RANK=3 of 4 local ranks",
        ),
        (
            "3/4 - - -",
            none(),
            "cpu: no CUDA device (no NVIDIA driver: /proc/driver/nvidia is missing)",
        ),
    ];
    for (text, visible, reason) in table {
        let (device, found, warnings) = decide(text, visible);
        assert_eq!(found, reason, "{text}");
        assert!(reason.starts_with(&device), "{text}");
        assert_eq!(warnings, Vec::<String>::new(), "{text}");
    }
}

#[test]
fn more_ranks_than_devices_share_them_and_say_so() {
    let (device, _, warnings) = decide("3/4 - - -", gpus(2));
    assert_eq!(
        (device.as_str(), warnings),
        (
            "cuda:1",
            vec!["4 local ranks share 2 CUDA devices".to_owned()]
        )
    );
}

#[test]
fn local_rank_overrules_a_wish_with_a_warning_that_names_both() {
    let (device, _, warnings) = decide("1/4 0 - cuda:5", gpus(4));
    assert_eq!(device, "cuda:1");
    assert_eq!(
        warnings,
        [
            "the policy device id asks for cuda:0, overruled by cuda:1: LOCAL_RANK=1 of 4 local ranks",
            "the policy's config asks for cuda:5, overruled by cuda:1: LOCAL_RANK=1 of 4 local ranks",
        ]
    );
}

fn placed(text: &str, device: usize, visible: &VisibleDevices) -> Result<Decision, DeviceError> {
    let placed = Some(Placed {
        device,
        reason: "rollout worker 1 is placed on GPU 3".to_owned(),
    });
    resolve(
        &DeviceRequest {
            placed,
            ..request(text)
        },
        visible,
    )
}

#[test]
fn a_placed_rank_takes_its_place_whatever_its_local_rank() {
    for text in [
        "1/2 - - -",
        "0/1 - - -",
        "1/2 3 - -",
        "1/2 - cuda -",
        "1/2 - cuda:3 -",
    ] {
        let decision = placed(text, 3, &gpus(4)).unwrap();
        assert_eq!(
            decision.reason, "cuda:3: rollout worker 1 is placed on GPU 3",
            "{text}"
        );
        assert_eq!(
            (decision.device, decision.warnings),
            (Device::Cuda(3), vec![]),
            "{text}"
        );
    }
    let decision = placed("1/2 - - cuda:0", 3, &gpus(4)).unwrap();
    assert_eq!(decision.warnings.len(), 1, "a config file is overruled");
    assert_eq!(placed("1/2 - - -", 3, &none()).unwrap().device, Device::Cpu);
    assert_eq!(
        placed("1/2 - cpu -", 3, &gpus(4)).unwrap().device,
        Device::Cpu
    );
}

#[test]
fn a_place_that_contradicts_a_wish_or_the_machine_is_refused() {
    let text = |words: &str, count| placed(words, 3, &gpus(count)).unwrap_err().to_string();
    let place = "rollout worker 1 is placed on GPU 3";
    assert_eq!(
        text("1/2 1 - -", 4),
        format!("the policy device id asks for cuda:1, but {place}; leave one of them out")
    );
    assert_eq!(
        text("1/2 - - -", 2),
        format!("{place}, which is cuda:3 here, but only cuda:0 to cuda:1 are visible")
    );
}

#[test]
fn explicit_cpu_is_honoured_with_several_ranks_and_beside_an_id() {
    assert_eq!(decide("1/4 - cpu cuda", gpus(4)).0, "cpu");
    let (device, _, warnings) = decide("0/1 2 cpu -", gpus(4));
    assert_eq!(device, "cpu");
    assert_eq!(
        warnings,
        ["the policy device id asks for cuda:2, overruled by cpu"]
    );
}

#[test]
fn two_explicit_wishes_that_differ_are_a_warning() {
    let (device, _, warnings) = decide("0/1 2 cuda:1 -", gpus(4));
    assert_eq!(device, "cuda:2");
    assert_eq!(
        warnings,
        [
            "the policy device asks for cuda:1, overruled by cuda:2: the policy device id asks for it"
        ]
    );
}

#[test]
fn config_falls_back_to_cpu_with_a_warning() {
    let (device, reason, warnings) = decide("0/1 - - cuda", none());
    assert_eq!(
        (device.as_str(), reason),
        ("cpu", format!("cpu: no CUDA device ({NO_DRIVER})"))
    );
    assert_eq!(
        warnings,
        [format!(
            "the policy's config asks for cuda, overruled by cpu: no CUDA device ({NO_DRIVER})"
        )]
    );
}

#[test]
fn nothing_asked_on_a_machine_without_cuda_is_the_cpu_without_a_warning() {
    assert_eq!(
        decide("-/1 - - -", none()),
        (
            "cpu".into(),
            format!("cpu: no CUDA device ({NO_DRIVER})"),
            vec![]
        )
    );
}

#[test]
fn several_ranks_asked_for_a_gpu_on_a_machine_without_cuda_are_warned() {
    let (device, _, warnings) = decide("1/2 - cuda:1 -", none());
    assert_eq!(device, "cpu");
    assert!(
        warnings[0].starts_with("the policy device asks for cuda:1, overruled by cpu"),
        "{warnings:?}"
    );
}

#[test]
fn what_cannot_be_had_is_an_error_that_names_what_is_visible() {
    let table = [
        (
            "0/1 4 - -",
            gpus(4),
            "the policy device id asks for cuda:4, but cuda:0 to cuda:3 are visible",
        ),
        (
            "0/1 -1 - -",
            gpus(4),
            "the policy device id asks for cuda:-1, but cuda:0 to cuda:3 are visible",
        ),
        (
            "0/1 - cuda:1 -",
            gpus(1),
            "the policy device asks for cuda:1, but only cuda:0 is visible",
        ),
        (
            "0/1 - - cuda:9",
            gpus(2),
            "the policy's config asks for cuda:9, but cuda:0 to cuda:1 are visible",
        ),
        (
            "0/1 - tpu -",
            gpus(1),
            "the policy device is `tpu`, expected `cpu`, `cuda` or `cuda:N`",
        ),
        (
            "0/1 - cuda:+1 -",
            gpus(4),
            "the policy device is `cuda:+1`, expected `cpu`, `cuda` or `cuda:N`",
        ),
        (
            "0/1 - - cuda:",
            gpus(4),
            "the policy's config is `cuda:`, expected `cpu`, `cuda` or `cuda:N`",
        ),
    ];
    for (text, visible, message) in table {
        assert_eq!(
            resolve(&request(text), &visible).unwrap_err().to_string(),
            message,
            "{text}"
        );
    }
}

#[test]
fn a_gpu_asked_for_on_a_machine_without_cuda_is_an_error() {
    let there_is_none = format!("but there is no CUDA device ({NO_DRIVER})");
    let err = |text| resolve(&request(text), &none()).unwrap_err().to_string();
    assert_eq!(
        err("0/1 0 - -"),
        format!("the policy device id asks for cuda:0, {there_is_none}")
    );
    assert_eq!(
        err("0/1 - cuda -"),
        format!("the policy device asks for cuda, {there_is_none}")
    );
    assert_eq!(
        err("0/1 - cuda:0 cpu"),
        format!("the policy device asks for cuda:0, {there_is_none}")
    );
}
