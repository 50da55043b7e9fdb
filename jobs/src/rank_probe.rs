//! What `rrun doctor` asks the rank binary, and what it answers.
//!
//! `rrun-rank probe egl` prints one line of JSON on standard output: `{"Ok": …}` with the data of
//! the question, or `{"Err": "reason"}`. Anything else on its output belongs to libraries.

use serde::{Deserialize, Serialize};

/// The first word of the command line of a probe.
pub const WORD: &str = "probe";

/// A question to the rank binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankQuestion {
    /// Which libraries it runs with: [`LoadedLibraries`].
    Libraries,
    /// Whether each GPU computes: [`ComputedOnGpus`].
    Cuda,
    /// Whether one process per GPU reaches the others through NCCL: [`RoundTrip`].
    Nccl,
    /// Whether it renders: [`DrawnPicture`], one per GPU, or one without GPUs.
    Egl,
}

impl RankQuestion {
    /// All questions.
    pub const ALL: [Self; 4] = [Self::Libraries, Self::Cuda, Self::Nccl, Self::Egl];

    /// Returns the word of the question.
    pub fn name(self) -> &'static str {
        match self {
            Self::Libraries => "libraries",
            Self::Cuda => "cuda",
            Self::Nccl => "nccl",
            Self::Egl => "egl",
        }
    }

    /// Returns the question with this word.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|question| question.name() == name)
    }
}

/// The libraries of the rank binary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedLibraries {
    /// Version of the rank binary, as `0.1.0 (1a2b3c4d5e6f)`.
    pub rrun: String,
    /// Version of libtorch, as `2.11.0+cu130`; `None` if no file says it.
    pub libtorch: Option<String>,
    /// Folder of libtorch's libraries.
    pub libtorch_folder: Option<String>,
    /// Whether that folder has libtorch's CUDA half.
    pub has_cuda_half: bool,
    /// Version of MuJoCo.
    pub mujoco: String,
}

/// The result of a small matrix product on every visible GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedOnGpus {
    /// Version of the CUDA runtime, as `13.0`.
    pub runtime: String,
    /// Version of NCCL, as `2.28.9`.
    pub nccl: String,
    /// The GPUs in CUDA's order.
    pub gpus: Vec<ComputedOnGpu>,
}

/// The result on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedOnGpu {
    /// Product name, as `NVIDIA H200`.
    pub name: String,
    /// The reason why it does not compute.
    pub error: Option<String>,
}

/// The result of all-reduces between processes of this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTrip {
    /// Number of processes.
    pub processes: usize,
    /// Size of the reduced tensor, in bytes.
    pub bytes: u64,
    /// Median time of an all-reduce, in seconds.
    pub all_reduce_s: f64,
    /// Time from the start of the processes until the first collective was done, in seconds.
    pub meeting_s: f64,
}

/// A picture of the task `reach`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrawnPicture {
    /// OpenGL's name of the renderer (`GL_RENDERER`), as `llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub renderer: String,
    /// The EGL device, as `NVIDIA, cuda:0`.
    pub device: String,
    /// Whether it was drawn on the CPU.
    pub is_software: bool,
    /// CUDA index of the GPU for which it was drawn.
    pub gpu: Option<usize>,
    /// Why another device renders than that of the GPU.
    pub note: Option<String>,
    /// Time for a pair of pictures of 224 x 224, in seconds, after the first pair.
    pub pair_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_one_word() {
        for question in RankQuestion::ALL {
            assert_eq!(RankQuestion::of(question.name()), Some(question));
        }
        assert_eq!(RankQuestion::of("torch"), None);
    }

    #[test]
    fn an_answer_is_one_line_of_json() {
        let answer: Result<RoundTrip, String> = Ok(RoundTrip {
            processes: 2,
            ..RoundTrip::default()
        });
        let line = serde_json::to_string(&answer).unwrap();
        assert!(line.starts_with(r#"{"Ok":{"processes":2,"#), "{line}");
        let back: Result<RoundTrip, String> = serde_json::from_str(&line).unwrap();
        assert_eq!(back, answer);
        let failed: Result<RoundTrip, String> = Err("no".to_owned());
        assert_eq!(
            serde_json::to_string(&failed).unwrap(),
            r#"{"Err":"no"}"#,
            "the form that is documented"
        );
    }
}
