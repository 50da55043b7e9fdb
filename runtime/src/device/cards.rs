//! Where a GPU stands among those of the machine, which are counted in two ways.
//!
//! CUDA counts the fastest GPU first, unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`. `nvidia-smi` and
//! simulators, which get that variable, count by address. It is the same where all GPUs are.

use std::fs::{self, File};
use std::path::Path;
use std::sync::LazyLock;

/// The folder in which the driver describes each GPU, in a folder of its PCI address.
const FOLDER: &str = "/proc/driver/nvidia/gpus";

/// A GPU that this process may open.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Card {
    /// PCI address with function, `0000:3b:00.0`.
    address: String,
    model: String,
}

/// Returns the index by address of the GPU at `pci` (`domain:bus:device`), if not all GPUs of the
/// machine are the same.
pub fn number(pci: &str) -> Option<u32> {
    static CARDS: LazyLock<Vec<Card>> = LazyLock::new(|| {
        let opens = |minor: &str| File::open(format!("/dev/nvidia{minor}")).is_ok();
        cards(Path::new(FOLDER), opens)
    });
    number_among(&CARDS, pci)
}

fn number_among(cards: &[Card], pci: &str) -> Option<u32> {
    if cards.windows(2).all(|pair| pair[0].model == pair[1].model) {
        return None;
    }
    let mut cards = cards.iter();
    let place = cards.position(|card| card.address.starts_with(pci))?;
    u32::try_from(place).ok()
}

/// Returns the GPUs in the order of their addresses. `opens` tells whether a control group lets
/// this process open the device file with a minor number: neither CUDA nor `nvidia-smi` count others.
fn cards(folder: &Path, opens: impl Fn(&str) -> bool) -> Vec<Card> {
    let card = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("information")).ok()?;
        let address = entry.file_name().into_string().ok()?;
        let model = field(&text, "Model:")?.to_owned();
        opens(field(&text, "Device Minor:")?).then_some(Card { address, model })
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cards: Vec<_> = entries.filter_map(card).collect();
    cards.sort_unstable();
    cards
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a driver's folder with these GPUs: address, model, minor number.
    fn driver(gpus: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (address, model, minor) in gpus {
            let gpu = folder.path().join(address);
            fs::create_dir(&gpu).unwrap();
            let text = format!(
                "Model: \t\t {model}\nIRQ:   \t\t 42\nBus Location: \t {address}\nDevice Minor: \t {minor}\n"
            );
            fs::write(gpu.join("information"), text).unwrap();
        }
        folder
    }

    const MIXED: [(&str, &str, &str); 3] = [
        ("0000:af:00.0", "NVIDIA H100", "2"),
        ("0000:3b:00.0", "NVIDIA T4", "0"),
        ("0000:5e:00.0", "NVIDIA T4", "1"),
    ];

    #[test]
    fn where_gpus_differ_each_has_the_number_of_its_address() {
        let cards = cards(driver(&MIXED).path(), |_| true);
        assert_eq!(number_among(&cards, "0000:af:00"), Some(2), "CUDA's first");
        assert_eq!(number_among(&cards, "0000:3b:00"), Some(0));
        assert_eq!(number_among(&cards, "0000:00:02"), None);
    }

    #[test]
    fn gpus_that_a_control_group_hides_are_not_counted() {
        let cards = cards(driver(&MIXED).path(), |minor| minor != "0");
        assert_eq!(number_among(&cards, "0000:af:00"), Some(1));
    }

    #[test]
    fn where_all_gpus_are_the_same_cudas_number_is_right() {
        let same = [
            ("0000:3b:00.0", "NVIDIA L4", "0"),
            ("0000:5e:00.0", "NVIDIA L4", "1"),
        ];
        assert_eq!(
            number_among(&cards(driver(&same).path(), |_| true), "0000:5e:00"),
            None
        );
        assert_eq!(
            number_among(&cards(Path::new("/nowhere"), |_| true), "0000:5e:00"),
            None
        );
    }
}
