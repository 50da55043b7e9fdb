//! The inputs of a package, made of observations: `[B, …]` tensors on the CPU, in the order of the
//! arguments of its `forward`.

use std::collections::BTreeSet;
use std::path::Path;

use tch::{Device, Kind, Tensor};

use crate::env::{EnvSpec, Observation};
use crate::policy::{PolicyError, PolicyRow, RowError, argument};
use jobs::exported::{Cameras, Description, Input, Layout, PixelKind, StateVector, TokenKind};
use jobs::policies::{Exported, PolicyType};
use jobs::wiring::Sides;
use models::tokens::TextTokenizer;
use torchlib::operators::normal;
use torchlib::package::{Signature, TensorLayout};

/// Where the values of all inputs come from.
pub(super) struct Inputs {
    sources: Vec<Source>,
    /// Types and shapes of the inputs.
    pub(super) signature: Signature,
}

/// Where the values of an input come from.
enum Source {
    /// With the names of the environment's cameras.
    Pictures(Cameras),
    /// Names of state vectors of the environment, with their lengths.
    State(Vec<(String, usize)>),
    Tokens(Box<Tokens>),
    /// Shape of the noise of a row.
    Noise(Vec<i64>),
}

impl Inputs {
    /// Connects the inputs of a package to an environment.
    ///
    /// # Errors
    /// Returns an error for a camera or a state that the environment lacks or has in another size,
    /// and for settings that the package has no use for.
    pub(super) fn new(
        description: &Description,
        settings: &Exported,
        env: &EnvSpec,
    ) -> Result<Self, PolicyError> {
        check_names(description, settings)?;
        let sides = Sides::new(PolicyType::Exported, env);
        let inputs = description.inputs.iter();
        let sources = inputs.map(|input| Source::new(input, settings, sides));
        let rows = [description.batch.min, description.batch.max].map(|rows| rows as i64);
        Ok(Self::of(sources.collect::<Result<_, _>>()?, rows))
    }

    /// Returns the inputs of a TorchScript module: pictures of these cameras, which have one size,
    /// states, and tokens.
    pub(super) fn of_script(
        (names, [height, width]): (Vec<String>, [u32; 2]),
        states: Vec<(String, usize)>,
        tokens: Tokens,
    ) -> Self {
        let sources = vec![
            Source::Pictures(Cameras {
                names,
                height,
                width,
                layout: Layout::Hwc,
                dtype: PixelKind::Uint8,
                stacked: true,
            }),
            Source::State(states),
            Source::Tokens(Box::new(tokens)),
        ];
        Self::of(sources, [1, i64::MAX])
    }

    fn of(sources: Vec<Source>, [min_batch, max_batch]: [i64; 2]) -> Self {
        let signature = Signature {
            inputs: sources.iter().map(Source::layout).collect(),
            min_batch,
            max_batch,
        };
        Self { sources, signature }
    }

    /// Returns whether pictures are among them.
    pub(super) fn needs_video(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| matches!(source, Source::Pictures(seen) if !seen.names.is_empty()))
    }

    /// Returns inputs of zeros.
    pub(super) fn zeros(&self, rows: usize) -> Vec<Tensor> {
        let zeros = |layout: &TensorLayout| {
            let shape = [&[rows as i64], layout.row.as_slice()].concat();
            Tensor::zeros(shape, (layout.kind, Device::Cpu))
        };
        self.signature.inputs.iter().map(zeros).collect()
    }

    /// Returns the inputs of some rows, with the noise of a policy with this seed.
    ///
    /// # Errors
    /// Returns an error for an observation that lacks what it showed at first.
    pub(super) fn tensors(
        &self,
        rows: &[&PolicyRow],
        seed: u64,
    ) -> Result<Vec<Tensor>, PolicyError> {
        self.sources
            .iter()
            .map(|source| source.tensor(rows, seed))
            .collect()
    }
}

impl Source {
    fn new(input: &Input, settings: &Exported, sides: Sides) -> Result<Self, PolicyError> {
        Ok(match input {
            Input::Cameras(cameras) => {
                let (mut cameras, size) = (cameras.clone(), [cameras.height, cameras.width]);
                for name in &mut cameras.names {
                    let own = settings.cameras.get(name).unwrap_or(name);
                    *name = sides.camera(name, &[own], Some(size))?.name.clone();
                }
                Self::Pictures(cameras)
            }
            Input::State { vectors } => {
                let mut states = Vec::with_capacity(vectors.len());
                for StateVector { name, size } in vectors {
                    let own = settings.states.get(name).unwrap_or(name);
                    sides.states(name, Some(*size), &[&[own]])?;
                    states.push((own.clone(), *size));
                }
                Self::State(states)
            }
            Input::Tokens { length, tokenizer } => {
                let path = settings.tokenizer_path.as_deref();
                if *tokenizer == TokenKind::File && path.is_none() {
                    let wanted = "expected the `tokenizer.json` that the package was made for";
                    return Err(argument("tokenizer_path", "missing", wanted));
                }
                Self::Tokens(Box::new(Tokens::open(path, *length)?))
            }
            Input::Noise { shape } => Self::Noise(shape.iter().map(|size| *size as i64).collect()),
        })
    }

    /// Returns the type and the shape of a row.
    fn layout(&self) -> TensorLayout {
        let (kind, row) = match self {
            Self::Pictures(cameras) => match cameras.dtype {
                PixelKind::Uint8 => (Kind::Uint8, shape(cameras)),
                PixelKind::Float32 => (Kind::Float, shape(cameras)),
            },
            Self::State(vectors) => {
                let length: usize = vectors.iter().map(|(_, length)| length).sum();
                (Kind::Float, vec![length as i64])
            }
            Self::Tokens(tokens) => (Kind::Int64, vec![tokens.length as i64]),
            Self::Noise(shape) => (Kind::Float, shape.clone()),
        };
        TensorLayout { kind, row }
    }

    fn tensor(&self, rows: &[&PolicyRow], seed: u64) -> Result<Tensor, PolicyError> {
        let observations = rows.iter().map(|row| row.now());
        match self {
            Self::Pictures(cameras) => pictures(cameras, observations),
            Self::State(vectors) => {
                let mut values = Vec::new();
                for observation in observations {
                    for (name, length) in vectors {
                        let state = observation.state.get(name);
                        let state = state.filter(|state| state.len() == *length);
                        let state = state.ok_or_else(|| RowError::resized("state", name))?;
                        values.extend_from_slice(state);
                    }
                }
                Ok(Tensor::from_slice(&values).view([rows.len() as i64, -1]))
            }
            Self::Tokens(tokens) => {
                let mut ids = Vec::new();
                for observation in observations {
                    ids.extend(tokens.of(&observation.language)?);
                }
                Ok(Tensor::from_slice(&ids).view([rows.len() as i64, -1]))
            }
            Self::Noise(shape) => {
                let noise = |row: &&PolicyRow| normal(row.noise_seed(seed), shape);
                let noises: Vec<_> = rows.iter().map(noise).collect();
                Ok(Tensor::stack(&noises, 0))
            }
        }
    }
}

/// Returns the shape of a row of pictures.
fn shape(cameras: &Cameras) -> Vec<i64> {
    let [height, width] = [cameras.height, cameras.width].map(i64::from);
    let picture = match cameras.layout {
        Layout::Hwc => [height, width, 3],
        Layout::Chw => [3, height, width],
    };
    let stack = cameras.stacked.then_some(cameras.names.len() as i64);
    stack.into_iter().chain(picture).collect()
}

/// Returns the pictures of observations, as one tensor.
fn pictures<'a>(
    cameras: &Cameras,
    observations: impl ExactSizeIterator<Item = &'a Observation>,
) -> Result<Tensor, PolicyError> {
    let size = [cameras.height, cameras.width];
    let rows = observations.len() as i64;
    let mut bytes = Vec::new();
    for observation in observations {
        for camera in &cameras.names {
            let frame = observation.video.get(camera);
            let frame = frame.filter(|frame| [frame.height, frame.width] == size);
            let frame = frame.ok_or_else(|| RowError::resized("picture of camera", camera))?;
            bytes.extend_from_slice(&frame.rgb);
        }
    }
    let ([height, width], count) = (size.map(i64::from), cameras.names.len() as i64);
    let mut pictures = Tensor::from_slice(&bytes).view([rows, count, height, width, 3]);
    if cameras.layout == Layout::Chw {
        pictures = pictures.permute([0, 1, 4, 2, 3]);
    }
    if cameras.dtype == PixelKind::Float32 {
        pictures = pictures.to_kind(Kind::Float) / 255.0;
    }
    let shape = [&[rows], shape(cameras).as_slice()].concat();
    Ok(pictures.contiguous().view(shape.as_slice()))
}

/// Makes tokens of instructions, a fixed number: those of a `tokenizer.json`, or their UTF-8 bytes.
pub(super) struct Tokens {
    tokenizer: Option<TextTokenizer>,
    /// Number of tokens of an instruction.
    pub(super) length: usize,
}

impl Tokens {
    /// Reads the tokenizer at `path`; without one, tokens are UTF-8 bytes.
    ///
    /// # Errors
    /// Returns an error if the tokenizer cannot be read.
    pub(super) fn open(path: Option<&Path>, length: usize) -> Result<Self, PolicyError> {
        let tokenizer = path.map(TextTokenizer::read).transpose()?;
        Ok(Self { tokenizer, length })
    }

    /// Returns the tokens of an instruction, cut off or padded on the right with 0.
    pub(super) fn of(&self, instruction: &str) -> Result<Vec<i64>, PolicyError> {
        let mut ids: Vec<i64> = match &self.tokenizer {
            None => instruction.bytes().map(i64::from).collect(),
            Some(tokenizer) => tokenizer.encode(instruction).map_err(RowError::from)?,
        };
        ids.resize(self.length, 0);
        Ok(ids)
    }
}

/// Checks that the package reads what the settings give other names.
fn check_names(description: &Description, settings: &Exported) -> Result<(), PolicyError> {
    let (mut cameras, mut states) = (BTreeSet::new(), BTreeSet::new());
    let mut has_tokens = false;
    for input in &description.inputs {
        match input {
            Input::Cameras(seen) => cameras.extend(seen.names.iter().map(String::as_str)),
            Input::State { vectors } => {
                states.extend(vectors.iter().map(|vector| vector.name.as_str()));
            }
            Input::Tokens { tokenizer, .. } => has_tokens |= *tokenizer == TokenKind::File,
            Input::Noise { .. } => {}
        }
    }
    let reads = [
        ("cameras", &settings.cameras, cameras),
        ("states", &settings.states, states),
    ];
    for (field, renamed, known) in reads {
        let mut renamed = renamed.iter();
        if let Some((name, found)) = renamed.find(|(name, _)| !known.contains(name.as_str())) {
            let known: Vec<&str> = known.into_iter().collect();
            let wanted = match known.join(", ") {
                none if none.is_empty() => format!("but the package reads no {field}"),
                some => format!("but the package reads {some}"),
            };
            let field = format!("{field}.{name}");
            return Err(argument(&field, &format!("`{found}`"), &wanted));
        }
    }
    match &settings.tokenizer_path {
        Some(path) if !has_tokens => {
            let found = format!("`{}`", path.display());
            let wanted = "but the package reads no tokens of a tokenizer";
            Err(argument("tokenizer_path", &found, wanted))
        }
        _ => Ok(()),
    }
}
