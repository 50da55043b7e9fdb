//! numpy's file format (npy), which GR00T's older dialect embeds in messages. It follows
//! numpy/lib/format.py of numpy 2.4.

use bytes::Bytes;
use serde::Deserialize;

use crate::{Array, Dtype};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum length of a header that numpy reads by default (`max_header_size`).
const LONGEST_HEADER: usize = 10_000;

/// Alignment of the end of a header (`ARRAY_ALIGN`).
const ALIGN: usize = 64;

/// Padding that numpy reserves for the first dimension to grow (`GROWTH_AXIS_MAX_DIGITS`).
const GROWTH_DIGITS: usize = 21;

/// Maximum number of dimensions of an array: numpy's `NPY_MAXDIMS`.
pub(super) const MOST_EDGES: usize = 64;

/// Returns a file of version 1.0.
pub(super) fn write(array: &Array) -> Bytes {
    let edges: Vec<String> = array.shape().iter().map(usize::to_string).collect();
    let shape = match &edges[..] {
        [only] => format!("({only},)"),
        several => format!("({})", several.join(", ")),
    };
    let growth = edges.first().map_or(0, |edge| GROWTH_DIGITS - edge.len());
    let descr = array.dtype().descr();
    let mut header = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}{:growth$}",
        ""
    );
    // Magic, version, length, header, and the final newline.
    let taken = MAGIC.len() + 4 + header.len() + 1;
    header.push_str(&" ".repeat(ALIGN - taken % ALIGN));
    header.push('\n');
    let length = u16::try_from(header.len())
        .unwrap_or(u16::MAX)
        .to_le_bytes();
    let header = header.as_bytes();
    [MAGIC, &[1, 0], &length, header, array.data()]
        .concat()
        .into()
}

fn wrong(reason: &str) -> String {
    format!("an array is not an npy file: {reason}")
}

/// Reads a file. Its elements are not copied, unless they are in column-major order.
pub(super) fn read(file: &Bytes) -> Result<Array, String> {
    let rest = file.strip_prefix(MAGIC);
    let rest = rest.ok_or_else(|| wrong("the magic string is missing"))?;
    let (length, width) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 2),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 4),
        _ => return Err(wrong("its version is none of 1, 2 and 3")),
    };
    let from = MAGIC.len() + 2 + width;
    let header = file.get(from..).and_then(|rest| rest.get(..length));
    let header = header
        .filter(|_| length <= LONGEST_HEADER)
        .ok_or_else(|| wrong("the header is too long"))?;
    let header = str::from_utf8(header).map_err(|_| wrong("the header is not text"))?;
    let header = Header::parse(header)?;
    let dtype = Dtype::new(&header.descr)?;
    let array = Array::new(dtype, header.shape, file.slice(from + length..))?;
    if !header.fortran_order {
        return Ok(array);
    }
    let rows = rows(&array);
    Array::new(array.dtype().clone(), array.shape().to_vec(), rows.into())
}

/// Converts the elements of a column-major array to row-major order. The time is proportional to
/// their bytes, however many dimensions there are.
fn rows(array: &Array) -> Vec<u8> {
    let (data, size) = (array.data(), array.dtype().size());
    // A dimension of size 1 has no effect. Without such dimensions, incrementing the index takes a
    // constant number of steps on average.
    let edges = array.shape().iter().filter(|edge| **edge != 1);
    // Index, size and stride in bytes of each dimension. In the source the first dimension varies
    // fastest, in the result the last one does.
    let mut stride = size;
    let mut digits = Vec::new();
    for edge in edges {
        digits.push([0, *edge, stride]);
        stride *= edge;
    }
    let mut rows = Vec::with_capacity(data.len());
    let mut from = 0;
    while rows.len() < data.len() {
        rows.extend_from_slice(&data[from..from + size]);
        for [index, edge, stride] in digits.iter_mut().rev() {
            *index += 1;
            from += *stride;
            if *index < *edge {
                break;
            }
            *index = 0;
            from -= *edge * *stride;
        }
    }
    rows
}

/// The header: a Python `dict` with three known keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// A list, which describes a record type, is refused.
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Self, String> {
        // As JSON, which has no commas at the end.
        let json: String = text.split_whitespace().collect();
        let json = json.replace('\'', "\"").replace('(', "[").replace(')', "]");
        let json = json.replace("True", "true").replace("False", "false");
        let json = json.replace(",]", "]").replace(",}", "}");
        let header = serde_json::from_str(&json).ok();
        let header = header.filter(|header: &Self| header.shape.len() <= MOST_EDGES);
        header
            .ok_or_else(|| wrong("the header is not {'descr': …, 'fortran_order': …, 'shape': …}"))
    }
}
