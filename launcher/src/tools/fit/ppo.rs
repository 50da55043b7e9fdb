//! `--ppo FILE`, `--preset`, `--ppo-table`: checks the sizes of a PPO training with Brax, and
//! compares its memory with that of a GPU.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use fit::ppo::{self, PpoError, PpoSizes, PpoTraining, Preset, SizeChange};
use jobs::bytes::ByteSize;
use jobs::config::Override;
use jobs::layout::write_whole;
use jobs::table::Table;
use serde::Serialize;

use crate::tools::{print, print_json};

/// Options of an evaluation, which do not apply to a training.
const OF_EVALUATIONS: [&str; 13] = [
    "jobs",
    "config",
    "probe",
    "placement",
    "workers_per_gpu",
    "max_batch",
    "pipeline_stages",
    "assign",
    "shard",
    "policy_device",
    "measured",
    "nproc_per_node",
    "gpus",
];

/// What is asked about a training.
#[derive(Debug, clap::Args)]
pub(super) struct Ppo {
    /// Check a PPO training of Brax instead, described by its YAML (ppo, network, as in
    /// WildRobot's)
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_EVALUATIONS, help_heading = "PPO")]
    ppo: Option<PathBuf>,

    /// Base settings; those of --ppo override them
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = OF_EVALUATIONS, help_heading = "PPO")]
    preset: Option<Preset>,

    /// Number of GPUs that share the environments
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["jobs", "config"], help_heading = "PPO",
          value_parser = clap::value_parser!(u64).range(1..=65536))]
    devices: u64,

    /// Write the effective settings: {config_file, overrides, final_config}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["jobs", "config"], help_heading = "PPO")]
    save: Option<PathBuf>,

    /// Show the sizes that WildRobot's memory guide recommends, and check each of them
    #[arg(long, conflicts_with_all = ["jobs", "config", "ppo", "preset", "num_envs"], help_heading = "PPO")]
    ppo_table: bool,
}

/// The reason why a training cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum PpoToolError {
    #[error(transparent)]
    PpoTraining(#[from] PpoError),
    #[error("cannot write `{path}`: {err}")]
    Save { path: String, err: io::Error },
    #[error(transparent)]
    Print(#[from] io::Error),
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The result for one training; also the output of `--json`.
#[derive(Debug, Serialize)]
struct PpoResult {
    schema: &'static str,
    sizes: PpoSizes,
    valid: bool,
    reason: Option<String>,
    nearest: Vec<PpoSizes>,
    /// Memory on each GPU, by the linear formula of the memory guide (s003).
    memory: ByteSize,
    gpu_memory: Option<ByteSize>,
    fits: Option<bool>,
    /// Largest number of environments with the given batch and minibatches.
    largest_num_envs: Option<u64>,
    /// Largest sizes with another number of minibatches.
    largest: Option<PpoSizes>,
    notes: Vec<String>,
}

impl Ppo {
    /// Returns whether a training is to be checked.
    pub(super) fn is_asked(&self) -> bool {
        self.ppo.is_some() || self.preset.is_some() || self.ppo_table
    }

    pub(super) fn run(
        &self,
        set: &[Override],
        gpu: Option<ByteSize>,
        json: bool,
    ) -> Result<ExitCode, PpoToolError> {
        if self.ppo_table {
            print(guide())?;
            return Ok(ExitCode::SUCCESS);
        }
        let training = PpoTraining::read(self.ppo.as_deref(), self.preset, set)?;
        if let Some(path) = &self.save {
            let bytes = serde_json::to_vec_pretty(&training.effective())?;
            write_whole(path, &bytes).map_err(|err| PpoToolError::Save {
                path: path.display().to_string(),
                err,
            })?;
        }
        let found = PpoResult::new(&training, self.devices, gpu)?;
        let is_good = found.valid && found.fits != Some(false);
        if json {
            print_json(&serde_json::to_string_pretty(&found)?)?
        } else {
            print(found.text())?
        }
        Ok(if is_good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl PpoResult {
    fn new(training: &PpoTraining, devices: u64, gpu: Option<ByteSize>) -> Result<Self, PpoError> {
        let sizes = training.sizes(devices)?;
        let reason = sizes.check().err().map(|violation| violation.to_string());
        let fits =
            |sizes: &PpoSizes| gpu.is_none_or(|gpu| ppo::bytes(sizes.num_envs, devices) <= gpu.0);
        let nearest = if reason.is_some() {
            sizes.nearest()
        } else {
            Vec::new()
        };
        let nearest: Vec<_> = nearest
            .into_iter()
            .map(|change| change.to)
            .filter(fits)
            .collect();
        let most = gpu.map(|gpu| ppo::most_envs(gpu.0, devices));
        Ok(Self {
            schema: "rrun/fit-ppo/1",
            sizes,
            valid: reason.is_none(),
            reason,
            nearest,
            memory: ByteSize(ppo::bytes(sizes.num_envs, devices)),
            gpu_memory: gpu,
            fits: gpu.map(|_| fits(&sizes)),
            largest_num_envs: most.and_then(|most| sizes.largest_envs(most)),
            largest: most.and_then(|most| largest(sizes, most)),
            notes: training.notes.clone(),
        })
    }

    fn text(&self) -> String {
        let PpoSizes {
            num_envs,
            batch_size,
            num_minibatches,
            devices,
        } = self.sizes;
        let head = [
            "num_envs",
            "batch_size",
            "num_minibatches",
            "GPUs",
            "Memory per GPU",
            "Valid",
        ];
        let valid = if self.valid { "yes" } else { "no" };
        let row = [num_envs, batch_size, num_minibatches, devices].map(|size| size.to_string());
        let [envs, batch, minibatches, gpus] = row;
        let mut lines = vec![
            Table::new(
                head,
                [[
                    envs,
                    batch,
                    minibatches,
                    gpus,
                    gb(self.memory),
                    valid.to_owned(),
                ]],
            )
            .grid(),
        ];
        if let Some(reason) = &self.reason {
            let nearest: Vec<_> = self
                .nearest
                .iter()
                .map(|to| {
                    SizeChange {
                        from: self.sizes,
                        to: *to,
                    }
                    .to_string()
                })
                .collect();
            let or = if nearest.is_empty() {
                "nothing near fits".to_owned()
            } else {
                nearest.join(", or ")
            };
            lines.push(format!("{reason}; nearest first: {or}"));
        }
        if let (Some(gpu), Some(fits)) = (self.gpu_memory, self.fits) {
            let verdict = if fits {
                "fits into"
            } else {
                "does not fit into"
            };
            lines.push(format!("about {} {verdict} {}", gb(self.memory), gb(gpu)));
            lines.push(match self.largest_num_envs {
                Some(most) => format!("largest num_envs that divides and fits: {most}"),
                None => "no num_envs that divides fits".to_owned(),
            });
            if let Some(to) = self
                .largest
                .filter(|to| Some(to.num_envs) > self.largest_num_envs)
            {
                lines.push(format!(
                    "with other minibatches: {}",
                    SizeChange {
                        from: self.sizes,
                        to
                    }
                ));
            }
        }
        lines.push(
            "memory by the formula of WildRobot's guide, 3 GB + 5.9 MB per environment; other \
             scenes differ"
                .to_owned(),
        );
        lines.extend(self.notes.iter().cloned());
        lines.join("\n")
    }
}

/// Returns the sizes with the most environments up to `most` and any number of minibatches. The
/// number of environments is a multiple of the batch and of the devices.
fn largest(sizes: PpoSizes, most: u64) -> Option<PpoSizes> {
    let unit = (1..=sizes.devices)
        .map(|times| times * sizes.batch_size)
        .find(|unit| unit.is_multiple_of(sizes.devices))?;
    if most < unit {
        None
    } else {
        sizes.with_minibatches(most / unit * unit)
    }
}

/// Returns the table of the guide's recommendations.
fn guide() -> String {
    let row = |row: &ppo::GuideRow| {
        let PpoSizes {
            num_envs,
            batch_size,
            num_minibatches,
            ..
        } = row.sizes;
        [
            row.place.to_owned(),
            row.gpu_gb
                .map_or_else(|| "-".to_owned(), |gb| format!("{gb} GB")),
            num_envs.to_string(),
            batch_size.to_string(),
            num_minibatches.to_string(),
            (batch_size * num_minibatches).to_string(),
            gb(ByteSize(ppo::bytes(num_envs, 1))),
            if row.is_said_valid {
                "valid"
            } else {
                "invalid"
            }
            .to_owned(),
            if row.is_valid() { "valid" } else { "INVALID" }.to_owned(),
            row.correction()
                .map_or_else(|| "-".to_owned(), |change| change.to_string()),
        ]
    };
    let rows = ppo::rows();
    let cells: Vec<_> = rows.iter().map(row).collect();
    let head = [
        "Guide",
        "GPU",
        "num_envs",
        "batch",
        "minibatches",
        "product",
        "Memory",
        "Said",
        "Is",
        "Nearest",
    ];
    let wrong = rows
        .iter()
        .filter(|row| row.is_said_valid && !row.is_valid())
        .map(|row| {
            let PpoSizes {
                num_envs,
                batch_size,
                num_minibatches,
                ..
            } = row.sizes;
            format!("{num_envs}/{batch_size}/{num_minibatches}")
        });
    let wrong: Vec<_> = wrong.collect();
    format!(
        "{}batch × minibatches must be a multiple of num_envs; the guide recommends {} rows that are not: {}",
        Table::new(head, cells).grid(),
        wrong.len(),
        wrong.join(", ")
    )
}

/// Formats bytes in GB, the unit of the guide and of GPU names.
fn gb(ByteSize(bytes): ByteSize) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
