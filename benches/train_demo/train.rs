//! `train`: behaviour cloning by flow matching, with the same modules that inference uses.
//!
//! The flow leads in a straight line from noise (time 0) to the expert's normalised plan (time 1).
//! The network gets a point on that line, and predicts the velocity, plan minus noise. Times are
//! (0.999 - b) / 0.999 with b from Beta(1.5, 1), as in the reference: early times are more
//! frequent.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use models::gr00t::model::{Conditions, Gr00t, PassConstants, PassInputs};
use models::gr00t::processor::Prompts;
use models::gr00t::{ModelConfig, VlmConfig};
use models::{Named, Weights};
use runtime::env::Lockstep;
use runtime::env::mujoco::{self, MujocoConfig};
use tch::{Device, Kind, Reduction, Tensor};

use crate::auxiliary::Auxiliary;
use crate::batch::Samples;
use crate::curve::{self, Curve};
use crate::noise::Rng;
use crate::optimiser::Optimiser;
use crate::{Outcome, VLM, checkpoint, network, start};

/// Largest time of the flow, as in the reference.
const LAST_TIME: f64 = 0.999;

/// Number of samples whose patches scale the patch projection.
const PATCHES_SEEN: usize = 400;

/// Number of steps per row of the curve.
const ROW_STEPS: i64 = 50;

/// Number of warm-up steps of the learning rate.
const WARM_UP: f64 = 100.0;

/// Interval at which the state is saved.
const SAVE_EVERY: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub struct Plan {
    /// Folder of the samples.
    #[arg(long, default_value = "outputs/train_demo")]
    samples: PathBuf,
    /// Tasks to train on.
    #[arg(long, value_delimiter = ',', default_value = "reach,push")]
    tasks: Vec<String>,
    /// Folder with `config.json` (token ids, vocabulary), tokenizer and chat template.
    #[arg(long, default_value = VLM)]
    vlm: PathBuf,
    /// Model directory to write.
    #[arg(long, default_value = "outputs/train_demo/model")]
    out: PathBuf,
    /// Folder for the curve and the state that training resumes from.
    #[arg(long, default_value = "outputs/train_demo/run")]
    work: PathBuf,
    /// Model directory to start from, instead of random weights.
    #[arg(long)]
    weights: Option<PathBuf>,
    /// Training time in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Samples of each task per step.
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Noise draws for each sample per step.
    #[arg(long, default_value_t = 2)]
    draws: usize,
    /// Peak learning rate.
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of libtorch threads.
    #[arg(long, default_value_t = 1)]
    threads: i32,
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
#[expect(clippy::disallowed_methods, reason = "it runs for a given time")]
pub fn run(plan: &Plan) -> Outcome<()> {
    tch::set_num_threads(plan.threads);
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
    loop {
        let part = begun.elapsed().as_secs_f64() / (plan.minutes * 60.0);
        if part >= 1.0 {
            break;
        }
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
            println!("{}", shown(&row));
            curve.add(&row)?;
            sums.clear();
        }
        if saved.elapsed() >= SAVE_EVERY {
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
    fn new(plan: &Plan) -> Outcome<Self> {
        let model = network::model();
        let vlm = network::vlm(&VlmConfig::read(&plan.vlm.join("config.json"))?);
        let prompts = Prompts::read(&plan.vlm, true)?;
        let mut tasks = Vec::new();
        for task in &plan.tasks {
            let prompt =
                prompts.tokens(&instruction(task)?, &[network::TOKENS; network::CAMERAS])?;
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
        let mut weights = Weights::open(&from, Device::Cpu, Kind::Float)?.kept();
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
    fn step(&mut self, plan: &Plan, rate: f64, rng: &mut Rng) -> Outcome<Told> {
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
    fn loss(&self, samples: &Samples, chosen: &[usize], draws: usize) -> Outcome<(Tensor, Told)> {
        let wanted = samples.wanted(chosen);
        let inputs = samples.inputs(chosen);
        let constants = self.network.constants(&inputs, &wanted.actions, 1, None)?;
        let batch = PassInputs::new(&inputs, wanted.actions.shallow_clone());
        let features = self.network.features(&constants, &batch);
        let (places, distances) = self.auxiliary.loss(
            &images(&features, constants.image_mask()),
            &wanted,
            samples.has_object,
        );
        let conditions = self.network.conditions(&constants, &features, &batch);
        let flow = self.flow(&constants, &conditions, &wanted.actions, draws);
        // Without an object there are only the distances to the goal.
        let every = if samples.has_object { 1 } else { 2 };
        let mut told = [f64::NAN; 6];
        (told[0], told[1]) = (flow.double_value(&[]), places.double_value(&[]));
        for (at, distance) in Vec::<f32>::try_from(&distances)?.into_iter().enumerate() {
            told[2 + at * every] = f64::from(distance);
        }
        Ok((flow + places, told))
    }

    /// Prints the losses and distances on held-out episodes.
    fn hold_out(&self, plan: &Plan) -> Outcome<()> {
        let _no_grad = tch::no_grad_guard();
        for (samples, task) in self.tasks.iter().zip(&plan.tasks) {
            let batches: Vec<_> = samples.held_out.chunks(plan.batch).collect();
            let told = batches
                .iter()
                .map(|batch| self.loss(samples, batch, plan.draws).map(|(_, told)| told));
            let told = mean(&told.collect::<Result<Vec<_>, _>>()?);
            println!("held out, {task}: {}", shown(&told));
        }
        Ok(())
    }

    fn flow(
        &self,
        constants: &PassConstants,
        conditions: &Conditions,
        actions: &Tensor,
        draws: usize,
    ) -> Tensor {
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
                .velocity(constants, conditions, &point, &bucket);
            losses.push(velocity.mse_loss(&(actions - noise), Reduction::Mean));
        }
        Tensor::stack(&losses, 0).mean(Kind::Float)
    }

    /// Writes a checkpoint with the averaged weights.
    fn write(&self, plan: &Plan) -> Outcome<()> {
        let (model, vlm) = &self.configs;
        let mut named = Named::new();
        for (specs, (name, tensor)) in Gr00t::tensors(model, vlm).iter().zip(&self.all) {
            let average = self.optimiser.averages().find(|(found, _)| found == name);
            let tensor = average.map_or(tensor, |(_, tensor)| tensor);
            let rows: Vec<_> = specs.iter().map(|(_, shape)| shape[0]).collect();
            let parts = tensor.detach().split_with_sizes(rows, 0);
            named.extend(specs.iter().map(|(name, _)| name.clone()).zip(parts));
        }
        checkpoint::write(&plan.out, &named, (model, vlm), &plan.vlm)
    }
}

/// Writes a checkpoint with initial weights, and returns its folder.
fn first(
    plan: &Plan,
    (model, vlm): (&ModelConfig, &VlmConfig),
    tasks: &[Samples],
) -> Outcome<PathBuf> {
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
    checkpoint::write_network(&dir, &weights, model)?;
    Ok(dir)
}

/// Draws times of the flow, `[rows]`. The distribution function of Beta(1.5, 1) is b^1.5.
fn times(rows: i64) -> Tensor {
    let b = Tensor::rand([rows], (Kind::Float, Device::Cpu)).pow_tensor_scalar(1.0 / 1.5);
    ((LAST_TIME - b) / LAST_TIME).clamp(0.0, LAST_TIME)
}

/// Returns the instruction of a task's environment.
fn instruction(task: &str) -> Outcome<String> {
    let config = MujocoConfig::new(task, 1);
    let env = Lockstep::new(mujoco::make(config, &serde_json::Map::new())?);
    Ok(env.spec().language.clone())
}

fn shown(values: &[f64]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("{value:.4}")).collect();
    values.join(" ")
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
fn images(features: &Tensor, image_mask: &Tensor) -> Tensor {
    let (rows, _, width) = features.size3().expect("features are [B, S, H]");
    let mask = image_mask.reshape([-1]).nonzero().view([-1]);
    features
        .reshape([-1, width])
        .index_select(0, &mask)
        .view([rows, -1, width])
}
