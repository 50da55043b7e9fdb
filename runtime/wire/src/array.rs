//! numpy arrays as bytes: element type, shape and data.

use bytes::Bytes;

use crate::Value;

/// A numpy array in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Bytes,
}

/// A numeric element type, described as in numpy: `<f4`, `|u1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dtype {
    descr: String,
    sort: Sort,
    /// Size of one element in bytes.
    size: usize,
    is_big_endian: bool,
}

/// The kind of a numeric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Bool,
    Int,
    Uint,
    Float,
}

impl Dtype {
    /// Parses numpy's type descriptor.
    ///
    /// # Errors
    /// Returns the reason for types that are not numeric.
    pub fn new(descr: &str) -> Result<Self, String> {
        let (order, rest) = match descr.as_bytes().first() {
            Some(order @ (b'<' | b'>' | b'|' | b'=')) => (*order, &descr[1..]),
            _ => (b'=', descr),
        };
        let sort = match rest {
            "b1" => Sort::Bool,
            "i1" | "i2" | "i4" | "i8" => Sort::Int,
            "u1" | "u2" | "u4" | "u8" => Sort::Uint,
            "f2" | "f4" | "f8" => Sort::Float,
            _ if rest.starts_with('O') => return Err(Self::objects()),
            _ => return Err(format!("data type '{descr}' not understood")),
        };
        let size = usize::from(rest.as_bytes()[1] - b'0');
        Ok(Self {
            descr: descr.to_owned(),
            sort,
            size,
            is_big_endian: order == b'>' && size > 1,
        })
    }

    /// Returns the refusal of object types, with the reference's text.
    pub(super) fn objects() -> String {
        "Refusing to decode object-dtype ndarray payload (pickle-bearing); the \
             allow_pickle=False contract is enforced by MsgSerializer."
            .to_owned()
    }

    /// Returns the type descriptor as it was written.
    pub fn descr(&self) -> &str {
        &self.descr
    }

    /// Returns the size of one element in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns Python's `str` of the type: `uint8`, `float32`. A type whose byte order is not this
    /// machine's keeps its descriptor.
    pub fn name(&self) -> String {
        let sort = match self.sort {
            Sort::Bool => return "bool".to_owned(),
            _ if self.is_big_endian => return self.descr.clone(),
            Sort::Int => "int",
            Sort::Uint => "uint",
            Sort::Float => "float",
        };
        format!("{sort}{}", self.size * 8)
    }
}

impl Array {
    /// Creates an array over bytes; bytes after its last element are ignored, as numpy does.
    ///
    /// # Errors
    /// Returns the reason if there are too few bytes.
    pub fn new(dtype: Dtype, shape: Vec<usize>, data: Bytes) -> Result<Self, String> {
        // Dimensions of size 0 count as 1 here, so that no later product of dimensions can
        // overflow.
        let largest = shape
            .iter()
            .try_fold(dtype.size, |size, edge| size.checked_mul((*edge).max(1)));
        let wanted = largest.map(|largest| if shape.contains(&0) { 0 } else { largest });
        match wanted {
            Some(wanted) if wanted <= data.len() => Ok(Self {
                dtype,
                shape,
                data: data.slice(..wanted),
            }),
            _ => {
                let found = data.len();
                Err(format!(
                    "an array has {found} bytes, its shape {shape:?} needs more"
                ))
            }
        }
    }

    /// Creates an array of `float32`.
    ///
    /// # Panics
    /// Panics if shape and values contradict each other.
    pub fn of_f32(shape: &[usize], numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        Self::exact("<f4", shape, bytes.collect())
    }

    /// Creates a vector of `float32`.
    pub fn vector(numbers: &[f32]) -> Self {
        Self::of_f32(&[numbers.len()], numbers)
    }

    /// Creates an array of `uint8` that shares the memory of `data`.
    ///
    /// # Panics
    /// Panics if shape and data contradict each other.
    pub fn of_u8(shape: &[usize], data: Bytes) -> Self {
        Self::exact("|u1", shape, data)
    }

    fn exact(descr: &str, shape: &[usize], data: Bytes) -> Self {
        let dtype = Dtype::new(descr).expect("the type is numeric");
        let elements: usize = shape.iter().product();
        assert_eq!(elements * dtype.size, data.len(), "shape {shape:?}");
        Self {
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> &Dtype {
        &self.dtype
    }

    /// Returns the size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the bytes of the elements, row-major.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the elements converted to `float32`, row-major.
    pub fn to_f32(&self) -> Vec<f32> {
        self.data
            .chunks_exact(self.dtype.size)
            .map(|bytes| self.number(bytes) as f32)
            .collect()
    }

    /// Returns the first element, or nil if there is none.
    pub(super) fn first(&self) -> Value {
        let Some(bytes) = self.data.get(..self.dtype.size) else {
            return Value::Nil;
        };
        match self.dtype.sort {
            Sort::Bool => (bytes[0] != 0).into(),
            Sort::Int => Value::Int(self.signed(bytes)),
            Sort::Uint => self.whole(bytes).into(),
            Sort::Float => Value::Float(self.number(bytes)),
        }
    }

    fn number(&self, bytes: &[u8]) -> f64 {
        match self.dtype.sort {
            Sort::Bool => f64::from(u8::from(bytes[0] != 0)),
            Sort::Uint => self.whole(bytes) as f64,
            Sort::Int => self.signed(bytes) as f64,
            Sort::Float => match self.dtype.size {
                2 => half(self.whole(bytes) as u16),
                4 => f64::from(f32::from_bits(self.whole(bytes) as u32)),
                _ => f64::from_bits(self.whole(bytes)),
            },
        }
    }

    fn signed(&self, bytes: &[u8]) -> i64 {
        let unused = 64 - 8 * bytes.len() as u32;
        (self.whole(bytes).cast_signed() << unused) >> unused
    }

    /// Decodes up to 8 bytes as an integer.
    fn whole(&self, bytes: &[u8]) -> u64 {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.dtype.is_big_endian {
            bytes.iter().fold(0, fold)
        } else {
            bytes.iter().rev().fold(0, fold)
        }
    }
}

/// Decodes an IEEE 754 binary16 number.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}
