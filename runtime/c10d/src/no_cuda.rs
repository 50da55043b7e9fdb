//! The reasons why this process cannot use CUDA.

use crate::ffi::library::LibraryError;

/// The reason why CUDA cannot be used here: what is missing and, if the user can fix it, how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCuda {
    /// The machine has no sign of a driver.
    #[error("no NVIDIA driver: /proc/driver/nvidia is missing")]
    NoDriver,
    /// The driver's library cannot be loaded.
    #[error("no NVIDIA driver: {0}")]
    DriverLibrary(LibraryError),
    /// The folder of libtorch's libraries is unknown.
    #[error(transparent)]
    NoLibtorch(#[from] NoLibtorch),
    /// A library that the install should have brought is missing.
    #[error("{name} is missing: install torch again, or run ./setup.sh again, on this machine")]
    MissingLibrary {
        /// File name of the library.
        name: String,
    },
    /// There is no shim for this version of libtorch.
    #[error("torch is {found}, but this program can use CUDA only with {wanted}")]
    OtherTorch {
        /// Major and minor number of the libtorch that is loaded.
        found: String,
        /// Those of the libtorch that the program was built with.
        wanted: &'static str,
    },
    /// libtorch's CUDA half or our shim cannot be loaded.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A first call to CUDA failed.
    #[error("{reason}")]
    Call {
        /// The error in the words of [`DistError`](crate::DistError).
        reason: String,
    },
}

impl NoCuda {
    /// Extends dlopen's error about a missing library with advice; other errors stay unchanged.
    pub(crate) fn of_library(err: LibraryError) -> Self {
        let text = err.to_string();
        let Some((library, _)) = text.split_once(": cannot open shared object file") else {
            return Self::Library(err);
        };
        let name = library.rsplit('/').next().unwrap_or(library);
        Self::MissingLibrary {
            name: name.to_owned(),
        }
    }
}

/// The reason why the folder of libtorch's libraries is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLibtorch {
    /// The list of loaded libraries cannot be read.
    #[error("cannot read /proc/self/maps: {reason}")]
    Maps {
        /// The error of the system.
        reason: String,
    },
    /// The list has no libtorch.
    #[error("libtorch_cpu.so is not loaded")]
    NotLoaded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_library_says_what_to_do() {
        let explained = |reason: &str| {
            let reason = reason.to_owned();
            NoCuda::of_library(LibraryError::Load { reason }).to_string()
        };
        assert_eq!(
            explained("libcusparse.so.12: cannot open shared object file: No such file"),
            "libcusparse.so.12 is missing: install torch again, or run ./setup.sh again, on this \
             machine"
        );
        assert_eq!(
            explained("x.so: undefined symbol: f"),
            "x.so: undefined symbol: f"
        );
    }
}
