//! Which camera and which states of an interface fill which input of a policy, and where the
//! numbers of its actions go.
//!
//! ```text
//! Wanted (what a policy reads) ─┐
//! Given (what the job says) ────┼─► Wiring: key ─► Source, a camera or states
//! Interface ────────────────────┘   or the one refusal: `policy … needs …; environment … has …`
//! ```
//! Everything is found by name, unless the job says otherwise. Nothing here looks at a picture, so
//! that a launcher can refuse as a rank does.

mod joints;
mod keys;

#[cfg(test)]
mod tests;

use std::fmt::Display;

use serde_json::{Map, Value};

use crate::interface::{CameraSpec, Interface};
use crate::policies::{PolicyType, argument};
use crate::refusal::Refusal;

pub use joints::{ActionPlaces, Joints};
pub use keys::{vla_eval, xpolicylab};

/// The setting that names the source of each of a server's keys.
const MAPPING: &str = "observation_mapping";

/// Names under which simulators show the positions of all joints as one vector.
const JOINT_VECTORS: [&str; 2] = ["robot_joint_pos", "joint_position"];

/// What fills an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The image of this camera.
    Camera(String),
    /// These states, one after the other.
    States(Vec<StatePart>),
}

/// A state vector, or some of its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePart {
    /// Name of the vector.
    pub of: String,
    /// Indices of the numbers; all of them if not given.
    pub at: Option<Vec<usize>>,
}

/// An input that a policy reads.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The policy's name for it.
    pub key: &'a str,
    /// What it has to be.
    pub what: What<'a>,
}

/// What an input has to be.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// The first of these cameras that is there.
    Camera(&'a [&'a str]),
    /// The first of these lists of states that is there in this length.
    States(usize, &'a [&'a [&'a str]]),
}

/// What the settings of a job say about the inputs.
#[derive(Clone, Copy, Default)]
pub struct Given<'a> {
    /// Source of each of some keys, and of others that the policy does not know.
    pub mapping: Option<&'a Map<String, Value>>,
    /// What an entry of `mapping` may name, by its key, if not anything.
    pub kind_of: Option<KindOf>,
    /// The cameras, in the order in which the policy reads them.
    pub cameras: Option<&'a [String]>,
}

/// Returns what an entry with this key may name; or why there is no such entry, as a clause.
pub type KindOf = fn(&str) -> Result<Kind, &'static str>;

/// What an entry of a mapping may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A camera, a state, or a list of states.
    Any,
    /// A camera.
    Camera,
    /// A state, or a list of states.
    States,
}

/// A policy, and the interface for which it acts.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    policy: PolicyType,
    /// What the environment shows and takes.
    pub face: &'a Interface,
}

/// The inputs of a policy and their sources, in the order in which the policy reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wiring {
    inputs: Vec<(String, Source)>,
}

impl Wiring {
    /// Connects both sides by name, or as the settings say. What a mapping has beside the wanted
    /// inputs follows them.
    ///
    /// # Errors
    /// Refuses an input that nothing fills, and settings that name what is not there.
    pub fn connect(sides: Sides, wanted: &[Wanted], given: &Given) -> Result<Self, Refusal> {
        let is_camera = |wanted: &&Wanted| matches!(wanted.what, What::Camera(_));
        let views = wanted.iter().filter(is_camera).map(|wanted| wanted.key);
        sides.count_cameras(&views.collect::<Vec<_>>(), given.cameras)?;
        let mut named = given.cameras.unwrap_or_default().iter();
        let mut inputs = Vec::new();
        for Wanted { key, what } in wanted {
            let own = given.mapping.and_then(|mapping| mapping.get(*key));
            let source = match (own, what) {
                (Some(own), _) => sides.mapped(key, own, given.kind_of)?,
                (None, What::Camera(names)) => {
                    let name = named.next().map(String::as_str);
                    let names = name.as_ref().map_or(*names, std::slice::from_ref);
                    Source::Camera(sides.camera(key, names, None)?.name.clone())
                }
                (None, What::States(length, choices)) => {
                    Source::States(sides.states(key, Some(*length), choices)?)
                }
            };
            inputs.push(((*key).to_owned(), source));
        }
        let is_wanted = |key: &str| wanted.iter().any(|wanted| wanted.key == key);
        let others = given.mapping.into_iter().flatten();
        for (key, own) in others.filter(|(key, _)| !is_wanted(key)) {
            inputs.push((key.clone(), sides.mapped(key, own, given.kind_of)?));
        }
        Ok(Self { inputs })
    }

    /// Connects a checkpoint that has keys of its own: its views, and its states with their lengths
    /// where it tells them. A job may list the cameras, in the order of the views, and say where
    /// joints are.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn checkpoint<'a>(
        sides: Sides,
        views: &[String],
        states: impl IntoIterator<Item = (&'a str, Option<usize>)>,
        (cameras, joints): (Option<&[String]>, Option<&Joints>),
    ) -> Result<Self, Refusal> {
        let keys: Vec<&str> = views.iter().map(String::as_str).collect();
        sides.count_cameras(&keys, cameras)?;
        let mut inputs = Vec::new();
        for (key, name) in views.iter().zip(cameras.unwrap_or(views)) {
            let camera = sides.camera(key, &[name], None)?;
            inputs.push((key.clone(), Source::Camera(camera.name.clone())));
        }
        for (key, length) in states {
            let at = joints.and_then(|joints| joints.state.get(key));
            let parts = match at {
                Some(at) => vec![sides.joints(key, length, at)?],
                None => sides.states(key, length, &[&[key]])?,
            };
            inputs.push((key.to_owned(), Source::States(parts)));
        }
        Ok(Self { inputs })
    }

    /// Returns the wiring of a checkpoint whose clients use its own keys.
    pub fn own<'a>(views: &[String], states: impl Iterator<Item = &'a str>) -> Self {
        let camera = |key: &String| (key.clone(), Source::Camera(key.clone()));
        let state = |key: &str| (key.to_owned(), Source::States(vec![whole(key)]));
        Self {
            inputs: views.iter().map(camera).chain(states.map(state)).collect(),
        }
    }

    /// Returns the inputs with their sources.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.inputs.iter().map(|(key, source)| (&**key, source))
    }

    /// Returns the inputs that are pictures, with their cameras.
    pub fn cameras(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inputs().filter_map(|(key, source)| match source {
            Source::Camera(camera) => Some((key, camera.as_str())),
            Source::States(_) => None,
        })
    }

    /// Returns the inputs that are numbers, with their states.
    pub fn states(&self) -> impl Iterator<Item = (&str, &[StatePart])> {
        self.inputs().filter_map(|(key, source)| match source {
            Source::States(parts) => Some((key, &parts[..])),
            Source::Camera(_) => None,
        })
    }

    /// Returns whether pictures are among the inputs.
    pub fn sees(&self) -> bool {
        self.cameras().next().is_some()
    }
}

impl<'a> Sides<'a> {
    /// Puts a policy of this type beside an interface.
    pub fn new(policy: PolicyType, face: &'a Interface) -> Self {
        Self { policy, face }
    }

    /// Refuses the interface: the policy needs something that it does not have, and says what it
    /// has instead.
    pub fn mismatch(&self, wanted: impl Display, found: impl Display) -> Refusal {
        let (policy, env) = (self.policy.name(), &self.face.name);
        Refusal::new(format_args!(
            "policy `{policy}` needs {wanted}; environment `{env}` has {found}"
        ))
    }

    /// Refuses the interface for want of a camera or a state.
    pub fn lacks(&self, wanted: impl Display) -> Refusal {
        let camera = |one: &CameraSpec| format!("{} [{}, {}]", one.name, one.height, one.width);
        let cameras = self.face.cameras.iter().map(camera);
        let state = |(name, length): &(String, usize)| format!("{name} [{length}]");
        let states = self.face.state.iter().map(state);
        let (cameras, states) = (all("cameras", cameras), all("states", states));
        self.mismatch(wanted, format_args!("{cameras}; {states}"))
    }

    /// Returns the first of some cameras that is there, which must have this height and width if
    /// they are given. `key` is what the policy calls it.
    ///
    /// # Errors
    /// Refuses an interface that has none of them.
    pub fn camera(
        &self,
        key: &str,
        names: &[&str],
        size: Option<[u32; 2]>,
    ) -> Result<&'a CameraSpec, Refusal> {
        let fits =
            |camera: &&CameraSpec| size.is_none_or(|size| size == [camera.height, camera.width]);
        let mut found = names.iter().filter_map(|name| self.face.camera(name));
        found.find(fits).ok_or_else(|| {
            let size = size.map(|[height, width]| format!(" [{height}, {width}]"));
            let size = size.unwrap_or_default();
            self.lacks(format_args!(
                "camera {}{size}{}",
                names.join(" or "),
                for_key(key, names)
            ))
        })
    }

    /// Returns the first of some lists of states that is there, which must have this length
    /// together if it is given.
    ///
    /// # Errors
    /// Refuses an interface that has none of them.
    pub fn states(
        &self,
        key: &str,
        length: Option<usize>,
        choices: &[&[&str]],
    ) -> Result<Vec<StatePart>, Refusal> {
        let length_of = |names: &[&str]| -> Option<usize> {
            names.iter().map(|name| self.face.length(name)).sum()
        };
        let fits = |names: &&&[&str]| {
            length_of(names).is_some_and(|found| length.is_none_or(|length| length == found))
        };
        if let Some(names) = choices.iter().find(fits) {
            return Ok(names.iter().map(|name| whole(name)).collect());
        }
        let length = length.map_or_else(String::new, |length| format!(" [{length}]"));
        let names: Vec<String> = choices.iter().map(|names| names.join(" + ")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let named = names.join(" or ");
        Err(self.lacks(format_args!(
            "state {named}{length}{}",
            for_key(key, &names)
        )))
    }

    /// Returns the cameras that a job lists, or all.
    ///
    /// # Errors
    /// Refuses an interface that lacks one.
    pub fn listed_cameras(
        &self,
        listed: Option<&[String]>,
    ) -> Result<Vec<&'a CameraSpec>, Refusal> {
        match listed {
            None => Ok(self.face.cameras.iter().collect()),
            Some(names) => {
                let camera = |name: &String| self.camera(name, &[name], None);
                names.iter().map(camera).collect()
            }
        }
    }

    /// Checks that the interface has these states.
    ///
    /// # Errors
    /// Refuses an interface that lacks one.
    pub fn require_states<N: AsRef<str>>(&self, names: &[N]) -> Result<(), Refusal> {
        let mut names = names.iter().map(AsRef::as_ref);
        names.try_for_each(|name| self.states(name, None, &[&[name]]).map(drop))
    }

    /// Checks that the action vector has `dim` numbers; `why` says which, as an addition.
    ///
    /// # Errors
    /// Refuses an interface with another action.
    pub fn action(&self, dim: usize, why: impl Display) -> Result<(), Refusal> {
        let names = &self.face.action.names;
        if names.len() == dim {
            return Ok(());
        }
        Err(self.mismatch(
            format_args!("an action of {dim} numbers{why}"),
            format_args!("one of {} ({})", names.len(), names.join(", ")),
        ))
    }

    /// Reads the entry of a mapping for a key: a camera, a state, or a list of states.
    fn mapped(&self, key: &str, given: &Value, kind_of: Option<KindOf>) -> Result<Source, Refusal> {
        let refused = |wanted: &str| {
            Err(argument(
                &format!("{MAPPING}.{key}"),
                &given.to_string(),
                wanted,
            ))
        };
        let kind = match kind_of.map_or(Ok(Kind::Any), |kind_of| kind_of(key)) {
            Ok(kind) => kind,
            Err(reason) => return refused(reason),
        };
        let names: Option<Vec<&str>> = match given {
            Value::String(name) => Some(vec![name]),
            Value::Array(names) => names.iter().map(Value::as_str).collect(),
            _ => None,
        };
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            return refused("expected a camera, a state or a list of states");
        };
        let is_camera = given.is_string() && self.face.camera(names[0]).is_some();
        if let Some(name) = names.iter().find(|name| self.face.length(name).is_none())
            && !is_camera
        {
            return Err(self.lacks(format_args!("{name} for {key}")));
        }
        match (is_camera, kind) {
            (true, Kind::States) => refused("expected a state or a list of states"),
            (false, Kind::Camera) => refused("expected a camera"),
            (true, _) => Ok(Source::Camera(names[0].to_owned())),
            (false, _) => Ok(Source::States(
                names.iter().map(|name| whole(name)).collect(),
            )),
        }
    }

    /// Returns the numbers of a vector of joints that are at these indices.
    fn joints(&self, key: &str, length: Option<usize>, at: &[usize]) -> Result<StatePart, Refusal> {
        if let Some(length) = length.filter(|length| *length != at.len()) {
            let found = format!("{} in the files of joints", at.len());
            return Err(self.mismatch(format_args!("{length} joints for state {key}"), found));
        }
        let needed = at.iter().max().map_or(0, |last| last + 1);
        let mut vectors = JOINT_VECTORS.into_iter();
        match vectors.find_map(|name| Some((name, self.face.length(name)?))) {
            Some((of, length)) if length >= needed => Ok(StatePart {
                of: of.to_owned(),
                at: Some(at.to_vec()),
            }),
            _ => {
                let wanted = format!("state {} [{needed} or more]", JOINT_VECTORS.join(" or "));
                Err(self.lacks(format_args!("{wanted} for {key}")))
            }
        }
    }

    /// Checks that a job lists as many cameras as the policy reads.
    fn count_cameras(&self, keys: &[&str], listed: Option<&[String]>) -> Result<(), Refusal> {
        match listed.filter(|listed| listed.len() != keys.len()) {
            None => Ok(()),
            Some(listed) => Err(self.lacks(format_args!(
                "{} cameras ({}) as pov_cam_name_sim {}",
                keys.len(),
                keys.join(", "),
                listed.join(", ")
            ))),
        }
    }
}

/// Returns a whole state.
fn whole(name: &str) -> StatePart {
    StatePart {
        of: name.to_owned(),
        at: None,
    }
}

/// Says what a policy calls an input, unless that is the only name.
fn for_key(key: &str, names: &[&str]) -> String {
    match names {
        [name] if *name == key => String::new(),
        _ => format!(" for {key}"),
    }
}

/// Says what there is: `no cameras`, `cameras front, wrist`.
fn all(what: &str, names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    match &names[..] {
        [] => format!("no {what}"),
        names => format!("{what} {}", names.join(", ")),
    }
}
