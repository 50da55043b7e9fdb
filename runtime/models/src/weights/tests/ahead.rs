//! Tests that tensors loaded ahead are equal to those that are copied one by one.

use std::fs::OpenOptions;
use std::sync::Mutex;

use super::*;
use crate::gr00t::model::Gr00t;
use crate::weights::tests::goldens::checkpoints;
use crate::weights::upload::Carrier;
use torchlib::upload::Staging;

/// Sizes so small that every buffer is used many times.
const SMALL: UploadSizes = UploadSizes {
    buffer: 4096,
    threads: 3,
};

/// Tensors on the CPU in place of a GPU. Nothing is copied until the caller waits for it, so that
/// tests detect a buffer that is reused too early.
#[derive(Default)]
pub(super) struct Late {
    sent: Mutex<BTreeMap<usize, Vec<(Tensor, Tensor)>>>,
}

impl Carrier for Late {
    fn buffer(&self, bytes: usize) -> Result<Staging, String> {
        Ok(Staging::pageable(i64::try_from(bytes).unwrap()))
    }

    fn send(&self, slot: usize, pairs: Vec<(Tensor, Tensor)>) -> Result<(), String> {
        let before = self.sent.lock().unwrap().insert(slot, pairs);
        before
            .is_none()
            .then_some(())
            .ok_or_else(|| format!("slot {slot} is sent twice"))
    }

    fn land(&self, slot: usize) -> Result<(), String> {
        let pairs = self
            .sent
            .lock()
            .unwrap()
            .remove(&slot)
            .ok_or_else(|| format!("slot {slot} was not sent"))?;
        for (mut target, source) in pairs {
            target.f_copy_(&source).map_err(|err| err.to_string())?;
        }
        Ok(())
    }
}

/// As [`Weights::ahead`], but to the CPU and with another carrier.
pub(super) fn ahead_by<C: Carrier>(
    weights: &mut Weights,
    specs: &[JointSpec],
    sizes: UploadSizes,
    carrier: C,
) {
    let checkpoint = weights.checkpoint.as_ref().unwrap();
    let target = (weights.kind, weights.device);
    weights.ahead = Ahead::begin(checkpoint, specs, target, sizes, || Ok(carrier)).unwrap();
}

/// Loads all of `specs`, ahead and one by one.
fn both(dir: &Path, specs: &[JointSpec], kind: Kind, sizes: UploadSizes) -> [Vec<Tensor>; 2] {
    let open = || Weights::open(dir, Device::Cpu, kind).unwrap();
    let (mut ahead, mut plain) = (open(), open());
    ahead_by(&mut ahead, specs, sizes, Late::default());
    [take_all(&mut ahead, specs), take_all(&mut plain, specs)]
}

/// A carrier of a machine without memory for buffers.
struct BrokenCarrier;

impl Carrier for BrokenCarrier {
    fn buffer(&self, bytes: usize) -> Result<Staging, String> {
        Err(format!("{bytes} bytes cannot be pinned"))
    }

    fn send(&self, slot: usize, _: Vec<(Tensor, Tensor)>) -> Result<(), String> {
        Err(format!("slot {slot} has no buffer"))
    }

    fn land(&self, slot: usize) -> Result<(), String> {
        Err(format!("slot {slot} has no buffer"))
    }
}

#[test]
fn every_golden_has_the_same_bits() {
    for case in checkpoints() {
        let (model, vlm) = ModelDir::open(&case, None).unwrap().configs().unwrap();
        let specs = Gr00t::tensors(&model, &vlm);
        for kind in [Kind::Float, Kind::BFloat16] {
            for sizes in [SMALL, UploadSizes::usual()] {
                let [ahead, plain] = both(&case, &specs, kind, sizes);
                assert!(ahead.iter().all(|tensor| tensor.kind() == kind));
                assert!(ahead == plain, "{}: {kind:?}", case.display());
            }
        }
    }
}

#[test]
fn tensors_at_odd_places_arrive() {
    let header = json!({
        "pad": entry("U8", &[1], 0, 1), "a": entry("F32", &[3], 1, 13), "b": entry("BF16", &[5], 13, 23),
        "more": entry("U8", &[2], 23, 25), "c": entry("F64", &[2, 1], 25, 41), "d": entry("F16", &[3], 41, 47),
    });
    let dir = single(&header, 47);
    let specs = specs([("a", &[3]), ("b", &[5]), ("c", &[2, 1]), ("d", &[3])]);
    for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
        for buffer in [64, 128, 4096] {
            let sizes = UploadSizes { buffer, threads: 2 };
            let [ahead, plain] = both(dir.path(), &specs, kind, sizes);
            let same = |(one, other): (&Tensor, &Tensor)| {
                one.view_dtype(Kind::Uint8) == other.view_dtype(Kind::Uint8)
            };
            assert!(
                ahead.iter().zip(&plain).all(same),
                "{kind:?} through {buffer} bytes"
            );
        }
    }
}

#[test]
fn a_tensor_larger_than_all_buffers_and_tiny_ones_beside_it_arrive() {
    let values = Tensor::arange(300_000, F32).remainder(250).view([3, -1]);
    let tiny = |at: i64| (format!("t{at:03}"), Tensor::from(at as f32).view([1]));
    let named: Vec<_> = [("big".to_owned(), values)]
        .into_iter()
        .chain((0..200).map(tiny))
        .collect();
    let dir = written(&named);
    let spec = |(name, tensor): &(String, Tensor)| vec![(name.clone(), tensor.size())];
    let specs: Vec<_> = named.iter().map(spec).collect();
    for kind in [Kind::Float, Kind::BFloat16] {
        let [ahead, _] = both(dir.path(), &specs, kind, SMALL);
        let fits = |(found, (_, wanted)): (&Tensor, &(String, Tensor))| {
            found.to_kind(Kind::Float) == *wanted
        };
        assert!(ahead.iter().zip(&named).all(fits), "{kind:?}");
    }
}

#[test]
fn a_scalar_and_an_empty_tensor_arrive() {
    let header = json!({"s": entry("F32", &[], 0, 4), "e": entry("F32", &[0, 3], 4, 4)});
    let specs = specs([("s", &[]), ("e", &[0, 3])]);
    let [ahead, plain] = both(single(&header, 4).path(), &specs, Kind::Half, SMALL);
    assert_eq!(ahead, plain);
}

#[test]
fn the_output_layer_stands_in_for_the_token_table_ahead_too() {
    let dir = single(&json!({LM_HEAD: entry("F32", &[2], 0, 8)}), 8);
    let specs = specs([(EMBED_TOKENS, &[2])]);
    let [ahead, plain] = both(dir.path(), &specs, Kind::Float, SMALL);
    assert_eq!(ahead, plain);
}

#[test]
fn what_is_missing_or_wrong_is_told_as_ever() {
    let dir = single(&json!({"a": entry("F32", &[2], 0, 8)}), 8);
    let specs = specs([("a", &[4]), ("b", &[1])]);
    let mut weights = open(&dir, Kind::Float).unwrap();
    let told = weights.check(&specs).unwrap_err().to_string();
    ahead_by(&mut weights, &specs, SMALL, Late::default());
    let sizes: Vec<_> = take_all(&mut weights, &specs)
        .iter()
        .map(Tensor::size)
        .collect();
    assert_eq!(sizes, [[4], [1]]);
    assert_eq!(weights.finish().unwrap_err().to_string(), told);
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_with_its_name() {
    let (dir, ..) = two_tensors();
    let path = dir.path().join(SINGLE);
    let mut weights = open(&dir, Kind::Float).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8).unwrap();
    ahead_by(&mut weights, &of_two_tensors(), SMALL, Late::default());
    let sizes = take_all(&mut weights, &of_two_tensors());
    assert_eq!((sizes[0].size(), sizes[1].size()), (vec![2, 2], vec![3]));
    let text = weights.finish().unwrap_err().to_string();
    assert!(
        text.starts_with(&format!("`{}`: ", path.display())) && text.contains("whole buffer"),
        "{text}"
    );
}

#[test]
fn a_machine_that_cannot_pin_memory_copies_piece_by_piece() {
    let (dir, a, b) = two_tensors();
    let mut weights = open(&dir, Kind::Float).unwrap();
    ahead_by(&mut weights, &of_two_tensors(), SMALL, BrokenCarrier);
    assert_eq!(take_all(&mut weights, &of_two_tensors()), [a, b]);
    weights.finish().unwrap();
}

#[test]
fn nobody_has_to_take_what_is_under_way() {
    let (dir, ..) = two_tensors();
    let mut weights = open(&dir, Kind::BFloat16).unwrap();
    ahead_by(&mut weights, &of_two_tensors(), SMALL, Late::default());
    drop(weights);
}

#[test]
fn on_a_cpu_nothing_is_brought_ahead() {
    let (dir, ..) = two_tensors();
    let mut weights = open(&dir, Kind::Float).unwrap();
    weights.ahead(&of_two_tensors()).unwrap();
    assert!(weights.ahead.is_none());
}
