//! Why a message cannot be read.

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// 0xc1, which starts nothing.
    #[error("no msgpack: byte {at} is 0xc1")]
    Format {
        /// Where.
        at: usize,
    },
    /// It ends within a value.
    #[error("the message is {bytes} bytes long and ends within a value")]
    Incomplete {
        /// Its length.
        bytes: usize,
    },
    /// Something comes after the value.
    #[error("{bytes} bytes follow the message")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A length that the message cannot hold.
    #[error("{found} exceeds {limit}({most})")]
    Length {
        /// `max_array_len` or `max_map_len`.
        limit: &'static str,
        /// What it says.
        found: u32,
        /// What it may say.
        most: usize,
    },
    /// Lists in lists.
    #[error("values are nested deeper than {most}")]
    Depth {
        /// How deep they may be.
        most: usize,
    },
    /// Many small values, each of which takes much more memory than its bytes.
    #[error("the message has more than {most} values")]
    Values {
        /// How many there may be.
        most: usize,
    },
    /// A text is no UTF-8.
    #[error("'utf-8' codec can't decode {0}")]
    Text(String),
    /// A key is neither text nor bytes.
    #[error("{kind} is not allowed for map key when strict_map_key=True")]
    MapKey {
        /// Python's name of its type.
        kind: &'static str,
    },
    /// An array of Python objects.
    #[error(
        "Refusing to decode object-dtype ndarray payload (pickle-bearing); the allow_pickle=False contract is enforced \
         by MsgSerializer."
    )]
    Object,
    /// A type of numbers that numpy does not have, or that is none.
    #[error("data type {found:?} not understood")]
    Dtype {
        /// As it was written.
        found: String,
    },
    /// Fewer bytes than the shape asks for.
    #[error("an array has {found} bytes, its shape {shape:?} needs more")]
    Small {
        /// How many there are.
        found: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A map that says it is an array lacks something or has it in a wrong form.
    #[error("an array's `{field}` is missing or of a wrong type")]
    Field {
        /// Which key.
        field: &'static str,
    },
    /// No npy file.
    #[error("an array is no npy file: {reason}")]
    Npy {
        /// Why.
        reason: &'static str,
    },
}

impl WireError {
    /// What the reference's server would say: the text of Python's exception, which may be empty.
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
