//! Adds noise to executed actions. It takes the arm to states that the expert alone would not
//! visit.

/// Range of the number of steps of a kick.
const KICK_STEPS: std::ops::Range<u32> = 2..6;

/// Speed of a kick, as a fraction of the maximum.
const KICK_SPEED: f32 = 0.42;

/// The random number generator SplitMix64 (Steele, Lea, Flood 2014).
pub struct Rng(u64);

impl Rng {
    /// Creates a generator with a different stream for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a uniform number in `0..1`.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Returns a standard normal number (Box, Muller 1958).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }
}

/// The disturbance of the translations in one episode.
pub struct Disturbance {
    rng: Rng,
    deviation: f32,
    kicks: f32,
    kick: [f32; 3],
    left: u32,
}

impl Disturbance {
    /// Creates noise of this standard deviation, and kicks that begin with probability `kicks` in
    /// each step.
    pub fn new(seed: u64, deviation: f32, kicks: f32) -> Self {
        Self {
            rng: Rng::new(seed),
            deviation,
            kicks,
            kick: [0.0; 3],
            left: 0,
        }
    }

    /// Changes the expert's action to the one that is executed. During a kick, the kick replaces
    /// its translation.
    pub fn apply(&mut self, action: &mut [f32]) {
        if self.left == 0 && self.rng.uniform() < self.kicks {
            self.start();
        }
        for (axis, value) in action.iter_mut().take(3).enumerate() {
            let wanted = if self.left > 0 {
                self.kick[axis]
            } else {
                *value
            };
            *value = (wanted + self.deviation * self.rng.normal()).clamp(-1.0, 1.0);
        }
        self.left = self.left.saturating_sub(1);
    }

    fn start(&mut self) {
        let direction = [(); 3].map(|()| self.rng.normal());
        let length = direction
            .iter()
            .map(|x| x * x)
            .sum::<f32>()
            .sqrt()
            .max(1e-6);
        self.kick = direction.map(|x| x / length * KICK_SPEED);
        let span = u64::from(KICK_STEPS.end - KICK_STEPS.start);
        self.left = KICK_STEPS.start + (self.rng.bits() % span) as u32;
    }
}
