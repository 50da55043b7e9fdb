//! The reasons why a message cannot be read.

/// The reason why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message contains 0xc1, which msgpack does not use.
    #[error("not msgpack: byte {at} is 0xc1")]
    Format {
        /// Byte offset in the message.
        at: usize,
    },
    /// The message ends within a value.
    #[error("the message is {bytes} bytes long and ends within a value")]
    Incomplete {
        /// Length of the message in bytes.
        bytes: usize,
    },
    /// There are bytes after the value.
    #[error("{bytes} bytes follow the message")]
    Trailing {
        /// Number of bytes after the value.
        bytes: usize,
    },
    /// A length is larger than the rest of the message.
    #[error("{found} exceeds {limit}({most})")]
    Length {
        /// The name of the limit: `max_array_len` or `max_map_len`.
        limit: &'static str,
        /// The length in the message.
        found: u32,
        /// The largest possible length.
        most: usize,
    },
    /// Lists and maps are nested too deeply.
    #[error("values are nested deeper than {most}")]
    Depth {
        /// Maximum nesting depth.
        most: usize,
    },
    /// There are too many values; small values take much more memory than their bytes in the
    /// message.
    #[error("the message has more than {most} values")]
    Values {
        /// Maximum number of values.
        most: usize,
    },
    /// A string is not valid UTF-8.
    #[error("'utf-8' codec can't decode {0}")]
    Text(String),
    /// A map key is neither a string nor bytes.
    #[error("{kind} is not allowed for map key when strict_map_key=True")]
    MapKey {
        /// Python's name of the key's type.
        kind: &'static str,
    },
    /// The message contains an array of Python objects.
    #[error(
        "Refusing to decode object-dtype ndarray payload (pickle-bearing); the allow_pickle=False contract is enforced \
         by MsgSerializer."
    )]
    Object,
    /// An element type is unknown to numpy or is not numeric.
    #[error("data type {found:?} not understood")]
    Dtype {
        /// The type descriptor as it was written.
        found: String,
    },
    /// An array has fewer bytes than its shape requires.
    #[error("an array has {found} bytes, its shape {shape:?} needs more")]
    Small {
        /// Number of bytes present.
        found: usize,
        /// Shape of the array.
        shape: Vec<usize>,
    },
    /// A map that represents an array lacks an entry, or has it in a wrong form.
    #[error("an array's `{field}` is missing or of a wrong type")]
    Field {
        /// Key of the entry.
        field: &'static str,
    },
    /// The data is not a valid npy file.
    #[error("an array is not an npy file: {reason}")]
    Npy {
        /// The reason.
        reason: &'static str,
    },
}

impl WireError {
    /// Returns the error message of the reference's server: the text of Python's exception, which
    /// may be empty.
    pub fn in_python(&self) -> String {
        match self {
            Self::Format { .. } => String::new(),
            Self::Incomplete { .. } => "Unpack failed: incomplete input".to_owned(),
            Self::Trailing { .. } => "unpack(b) received extra data.".to_owned(),
            Self::Dtype { found } => format!("data type '{found}' not understood"),
            Self::Small { .. } => "buffer is too small for requested array".to_owned(),
            Self::Field { field } => format!("b'{field}'"),
            other => other.to_string(),
        }
    }
}
