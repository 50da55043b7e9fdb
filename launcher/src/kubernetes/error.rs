//! Errors of the inference from the variables of a pod.

/// The reason why nothing can be inferred from the variables of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubernetesError {
    /// A variable is missing without which another one has no meaning.
    #[error(
        "Kubernetes: {given} is set, but {name} is not ({hint}); `--kubernetes off` launches \
         without these variables"
    )]
    Missing {
        /// Name of the variable that is set.
        given: &'static str,
        /// Name of the missing variable.
        name: &'static str,
        /// Where it comes from.
        hint: &'static str,
    },
    /// The value of a variable is not usable.
    #[error(
        "Kubernetes: the variable {name} is `{found}`, expected {wanted}; `--kubernetes off` \
         launches without it"
    )]
    Value {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// The expected form.
        wanted: String,
    },
    /// The host name is not that of a pod of an Indexed Job.
    #[error(
        "Kubernetes: the name of this pod is `{found}`, expected `<job>{ending}` as in an Indexed \
         Job without hostNetwork: set MASTER_ADDR to the address of the first pod, or use \
         `--kubernetes off`"
    )]
    HostName {
        /// The host name.
        found: String,
        /// How it should end.
        ending: String,
    },
    /// Other pods have no name for the first one.
    #[error(
        "Kubernetes: the pod `{host}` has no domain, so other pods cannot find the first one: set \
         `subdomain` of the pod template to the name of a headless Service, or MASTER_ADDR to the \
         address of the first pod"
    )]
    Domain {
        /// The host name of this pod.
        host: String,
    },
}
