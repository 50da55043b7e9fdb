//! Policies that answer the clients of a server.
//!
//! ```text
//! PolicyRequest ─┬─ Gr00tServed: a checkpoint, which clients address by its own keys
//!                └─ ServedPolicy: any Policy, for the cameras, states and actions of an interface
//!                     rows ─► ClientSlots ─► reset, observe, act ─► Actions
//! ```

mod interface;
mod observation;
mod policy;
mod request;
mod slots;

use jobs::policies::{PolicyType, Serving};
use jobs::serve_args::PolicyChoice;

use crate::env::EnvSpec;
use crate::policy::config::known;
use crate::policy::gr00t::{Gr00tServed, Gr00tSettings};
use crate::policy::served::policy::ServedPolicy;
use crate::policy::{Checkpoints, Lifeline, PolicyError};

pub use interface::of_environment;
pub use request::{Actions, ClientEpisodeRow, ClientId, Noise, PolicyRequest, Served, ServedSpec};

/// Creates the policy of a type and a `policy_config_dict` for clients; with `interface`, for
/// clients with these cameras, states and actions.
///
/// # Errors
/// Fails like [`crate::policy::check`] and [`crate::policy::make`], and for a policy that cannot
/// be served, or not without an interface.
pub fn serve(
    choice: &PolicyChoice,
    interface: Option<&EnvSpec>,
    checkpoints: &mut Checkpoints,
    lifeline: &Lifeline,
) -> Result<Box<dyn Served>, PolicyError> {
    let PolicyChoice {
        policy_type,
        config,
    } = choice;
    crate::policy::check(policy_type, config)?;
    let policy = known(policy_type)?;
    match (policy.row().serving, interface, policy) {
        (Serving::Refused(reason), _, _) => Err(PolicyError::not_served(policy.name(), reason)),
        (Serving::Interface | Serving::OwnKeys, Some(env), _) => {
            let made = crate::policy::make(policy_type, config, env, checkpoints, lifeline)?;
            Ok(Box::new(ServedPolicy::new(policy, made, env)?))
        }
        (Serving::OwnKeys, None, PolicyType::Gr00t) => Ok(Box::new(Gr00tServed::new(
            Gr00tSettings::read(config)?,
            checkpoints,
        )?)),
        (Serving::Interface | Serving::OwnKeys, None, _) => Err(PolicyError::not_served(
            policy.name(),
            "it has to know an interface",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_the_table_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let env = crate::policy::tests::env_spec();
        for policy in PolicyType::ALL.iter().copied() {
            let choice = PolicyChoice {
                policy_type: policy.name().to_owned(),
                config: crate::policy::config::tests::required(policy, folder.path()),
            };
            let is_refused = |interface: Option<&EnvSpec>| {
                let mut models = Checkpoints::new(tch::Device::Cpu);
                let made = serve(&choice, interface, &mut models, &Lifeline::alone());
                made.err()
                    .is_some_and(|err| err.to_string().contains("cannot be served"))
            };
            let serving = policy.row().serving;
            if !policy.row().is_remote {
                let wanted = matches!(serving, Serving::Refused(_));
                assert_eq!(is_refused(Some(&env)), wanted, "{policy:?}");
            }
            assert_eq!(is_refused(None), serving != Serving::OwnKeys, "{policy:?}");
        }
    }
}
