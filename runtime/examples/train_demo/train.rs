//! `train`: behaviour cloning by flow matching, with the same modules that inference uses.
//!
//! The flow leads in a straight line from noise (time 0) to the expert's normalised plan (time 1).
//! The network gets a point on that line, and predicts the velocity, plan minus noise. Times are
//! (0.999 - b) / 0.999 with b from Beta(1.5, 1), as in the reference: early times are more
//! frequent.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gr00t::model::{Features, Gr00t, NoTap, Robot};
use gr00t::processor::Prompts;
use gr00t::{ModelConfig, Named, VlmConfig, Weights, write_checkpoint};
use tch::{Device, Kind, Reduction, Tensor};

use crate::auxiliary::Auxiliary;
use crate::batch::Samples;
use crate::curve::{self, Curve};
use crate::noise::Rng;
use crate::optimiser::Optimiser;
use crate::{checkpoint, network, start};

/// Largest time of the flow, as in the reference.
const LAST_TIME: f64 = 0.999;

/// Number of samples whose patches scale the patch projection.
const PATCHES_SEEN: usize = 400;

/// Number of steps per row of the curve.
const ROW_STEPS: i64 = 50;

/// Number of warm-up steps of the learning rate.
const WARM_UP: f64 = 100.0;

/// The parameters of a training.
pub struct Plan {
    /// Folder with the samples of [`crate::collect`].
    pub samples: PathBuf,
    /// The tasks, with their instructions.
    pub tasks: Vec<(String, String)>,
    /// Folder with the tokenizer.
    pub vlm: PathBuf,
    /// Model directory to write.
    pub out: PathBuf,
    /// Folder of the curve and of the saved state.
    pub work: PathBuf,
    /// Model directory to start from instead of random weights.
    pub weights: Option<PathBuf>,
    /// Duration of the training.
    pub time: Duration,
    /// Number of samples of each task in a step.
    pub batch: usize,
    /// Number of noise draws for each sample in a step.
    pub draws: usize,
    /// Maximum learning rate.
    pub learning_rate: f64,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Interval at which the state is saved.
    pub save_every: Duration,
}

/// Flow loss, auxiliary loss, and the four distances of [`Auxiliary::loss`] in centimetres; NaN for
/// distances that a task lacks.
type Told = [f64; 6];

struct Training {
    network: Gr00t,
    all: Named,
    auxiliary: Auxiliary,
    optimiser: Optimiser,
    tasks: Vec<Samples>,
    configs: (ModelConfig, VlmConfig),
}

/// Trains for the duration of the plan, with a cosine schedule of the learning rate.
#[expect(
    clippy::disallowed_methods,
    reason = "an example that runs for a given time"
)]
pub fn run(plan: &Plan) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(&plan.work)?;
    tch::manual_seed(plan.seed.cast_signed());
    let mut training = Training::new(plan)?;
    let state = plan.work.join("state.ot");
    if state.is_file() {
        training.optimiser.restore(&Tensor::load_multi(&state)?);
        println!("goes on from step {}", training.optimiser.steps());
    }
    let table = plan.work.join("curve.csv");
    let mut curve = Curve::open(&table)?;
    let mut rng = Rng::new(plan.seed);
    let (begun, mut saved, mut sums) = (Instant::now(), Instant::now(), Vec::new());
    while begun.elapsed() < plan.time {
        let part = begun.elapsed().as_secs_f64() / plan.time.as_secs_f64();
        let warm = ((training.optimiser.steps() + 1) as f64 / WARM_UP).min(1.0);
        let rate = plan.learning_rate * warm * (0.5 + 0.5 * (std::f64::consts::PI * part).cos());
        sums.push(training.step(plan, rate, &mut rng)?);
        if training.optimiser.steps() % ROW_STEPS == 0 {
            let mut row = vec![
                training.optimiser.steps() as f64,
                begun.elapsed().as_secs_f64(),
                rate,
            ];
            row.extend(mean(&sums));
            println!(
                "{}",
                row.iter()
                    .map(|value| format!("{value:.4}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            );
            curve.add(&row)?;
            sums.clear();
        }
        if saved.elapsed() >= plan.save_every {
            Tensor::save_multi(&training.optimiser.state(), &state)?;
            training.write(plan)?;
            saved = Instant::now();
        }
    }
    Tensor::save_multi(&training.optimiser.state(), &state)?;
    training.write(plan)?;
    training.hold_out(plan)?;
    curve::draw(&table, &plan.work.join("curve.svg"))?;
    Ok(())
}

impl Training {
    fn new(plan: &Plan) -> Result<Self, Box<dyn Error>> {
        let model = network::model();
        let vlm = network::vlm(&VlmConfig::read(&plan.vlm.join("config.json"))?);
        let prompts = Prompts::read(&plan.vlm, true)?;
        let mut tasks = Vec::new();
        for (task, words) in &plan.tasks {
            let prompt = prompts.tokens(words, &[network::TOKENS; network::CAMERAS])?;
            let samples = Samples::read(&plan.samples.join(task), prompt)?;
            println!(
                "{task}: {} samples, {} held out",
                samples.training.len(),
                samples.held_out.len()
            );
            tasks.push(samples);
        }
        let from = match &plan.weights {
            Some(from) => from.clone(),
            None => first(plan, (&model, &vlm), &tasks)?,
        };
        let mut weights = Weights::open(&from, Device::Cpu, Kind::Float)?;
        let network = Gr00t::new(&mut weights, &model, &vlm);
        let all = weights.finish()?;
        let auxiliary = Auxiliary::new();
        let moving = all.iter().filter(|(name, _)| !start::is_fixed(name));
        let moving = moving.map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        let optimiser = Optimiser::new(moving.chain(auxiliary.named()).collect());
        Ok(Self {
            network,
            all,
            auxiliary,
            optimiser,
            tasks,
            configs: (model, vlm),
        })
    }

    /// Makes one step on a batch of every task. Returns its losses and distances, averaged over the
    /// tasks.
    fn step(&mut self, plan: &Plan, rate: f64, rng: &mut Rng) -> Result<Told, Box<dyn Error>> {
        let (mut losses, mut told) = (Vec::new(), Vec::new());
        for samples in &self.tasks {
            let from = &samples.training;
            let chosen: Vec<_> = (0..plan.batch)
                .map(|_| from[rng.bits() as usize % from.len()])
                .collect();
            let (loss, part) = self.loss(samples, &chosen, plan.draws)?;
            losses.push(loss);
            told.push(part);
        }
        self.optimiser
            .step(&Tensor::stack(&losses, 0).sum(Kind::Float), rate);
        Ok(mean(&told))
    }

    /// Returns the loss of these samples, with the values to report.
    fn loss(
        &self,
        samples: &Samples,
        chosen: &[usize],
        draws: usize,
    ) -> Result<(Tensor, Told), Box<dyn Error>> {
        let wanted = samples.wanted(chosen);
        let inputs = samples.inputs(chosen);
        let features = self.network.features(&inputs, &mut NoTap)?;
        let (places, distances) =
            self.auxiliary
                .loss(&images(&features), &wanted, samples.has_object);
        let robot = Robot {
            state: &inputs.state,
            embodiment_id: &inputs.embodiment_id,
        };
        let flow = self.flow(&features, &robot, &wanted.actions, draws)?;
        let distances = Vec::<f32>::try_from(&distances)?
            .into_iter()
            .map(f64::from)
            .collect::<Vec<_>>();
        let distances = match distances[..] {
            [goal, object, goal_from_hand, object_from_hand] => {
                [goal, object, goal_from_hand, object_from_hand]
            }
            [goal, goal_from_hand] => [goal, f64::NAN, goal_from_hand, f64::NAN],
            _ => [f64::NAN; 4],
        };
        let [a, b, c, d] = distances;
        let told = [flow.double_value(&[]), places.double_value(&[]), a, b, c, d];
        Ok((flow + places, told))
    }

    /// Prints the losses and distances on held-out episodes.
    fn hold_out(&self, plan: &Plan) -> Result<(), Box<dyn Error>> {
        let _no_grad = tch::no_grad_guard();
        for (samples, (task, _)) in self.tasks.iter().zip(&plan.tasks) {
            let batches: Vec<_> = samples.held_out.chunks(plan.batch).collect();
            let told = batches
                .iter()
                .map(|batch| self.loss(samples, batch, plan.draws).map(|(_, told)| told));
            let told = mean(&told.collect::<Result<Vec<_>, _>>()?);
            println!(
                "held out, {task}: {}",
                told.map(|value| format!("{value:.4}")).join(" ")
            );
        }
        Ok(())
    }

    fn flow(
        &self,
        features: &Features,
        robot: &Robot<'_>,
        actions: &Tensor,
        draws: usize,
    ) -> Result<Tensor, Box<dyn Error>> {
        let conditions = self
            .network
            .head()
            .conditions(features, robot, &mut NoTap)?;
        let rows = actions.size()[0];
        let mut losses = Vec::new();
        for _ in 0..draws {
            let time = times(rows);
            let noise = actions.randn_like();
            let at = time.view([rows, 1, 1]);
            let point = (1.0 - &at) * &noise + &at * actions;
            let buckets = self.configs.0.num_timestep_buckets as f64;
            let bucket = (&time * buckets).to_kind(Kind::Int64);
            let velocity = self
                .network
                .head()
                .velocity(&conditions, &point, &bucket, &mut NoTap);
            losses.push(velocity.mse_loss(&(actions - noise), Reduction::Mean));
        }
        Ok(Tensor::stack(&losses, 0).mean(Kind::Float))
    }

    /// Writes a checkpoint with the averaged weights.
    fn write(&self, plan: &Plan) -> Result<(), Box<dyn Error>> {
        let average = |name: &str| {
            self.optimiser
                .averages()
                .find(|(found, _)| *found == name)
                .map(|(_, tensor)| tensor)
        };
        let pick = |(name, tensor): &(String, Tensor)| {
            (name.clone(), average(name).unwrap_or(tensor).detach())
        };
        let named: Named = self.all.iter().map(pick).collect();
        checkpoint::write(
            &plan.out,
            &named,
            (&self.configs.0, &self.configs.1),
            &plan.vlm,
        )
    }
}

/// Writes a checkpoint with initial weights, and returns its folder.
fn first(
    plan: &Plan,
    (model, vlm): (&ModelConfig, &VlmConfig),
    tasks: &[Samples],
) -> Result<PathBuf, Box<dyn Error>> {
    let dir = plan.work.join("start");
    std::fs::create_dir_all(&dir)?;
    let patches: Vec<_> = tasks
        .iter()
        .map(|samples| samples.patches(PATCHES_SEEN))
        .collect();
    let weights = start::weights(
        model,
        vlm,
        plan.seed.cast_signed(),
        &Tensor::cat(&patches, 0),
    );
    write_checkpoint(Path::new(&dir), &weights, Kind::Float, model)?;
    Ok(dir)
}

/// Draws times of the flow, `[rows]`. The distribution function of Beta(1.5, 1) is b^1.5.
fn times(rows: i64) -> Tensor {
    let b = Tensor::rand([rows], (Kind::Float, Device::Cpu)).pow_tensor_scalar(1.0 / 1.5);
    ((LAST_TIME - b) / LAST_TIME).clamp(0.0, LAST_TIME)
}

/// Returns the mean of each value, without NaN.
fn mean(told: &[Told]) -> Told {
    std::array::from_fn(|at| {
        let values: Vec<_> = told
            .iter()
            .map(|told| told[at])
            .filter(|value| value.is_finite())
            .collect();
        values.iter().sum::<f64>() / values.len() as f64
    })
}

/// Returns the features of the image tokens, `[B, n, H]`.
fn images(features: &Features) -> Tensor {
    let (rows, _, width) = features.features.size3().expect("features are [B, S, H]");
    let mask = features.image_mask().reshape([-1]).nonzero().view([-1]);
    features
        .features
        .reshape([-1, width])
        .index_select(0, &mask)
        .view([rows, -1, width])
}
