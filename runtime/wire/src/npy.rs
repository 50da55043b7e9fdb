//! numpy's file format (npy), which GR00T's older dialect embeds in messages. It follows
//! numpy/lib/format.py of numpy 2.4.

use bytes::Bytes;

use crate::{Array, Dtype, WireError};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum length of a header that numpy reads by default (`max_header_size`).
const LONGEST_HEADER: usize = 10_000;

/// Alignment of the end of a header (`ARRAY_ALIGN`).
const ALIGN: usize = 64;

/// Padding that numpy reserves for the first dimension to grow (`GROWTH_AXIS_MAX_DIGITS`).
const GROWTH_DIGITS: usize = 21;

/// Maximum number of dimensions of an array: numpy's `NPY_MAXDIMS`.
pub(super) const MOST_EDGES: usize = 64;

/// Edge of a tile for transposing: 32 × 32 elements of 8 bytes fit twice into a first-level cache.
const TILE: usize = 32;

/// Returns the bytes before the elements in a file of version 1.0.
pub(super) fn head(array: &Array) -> Vec<u8> {
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
    [MAGIC, &[1, 0], &length, header.as_bytes()].concat()
}

/// Reads a file. Its elements are not copied, unless they are in column-major order.
pub(super) fn read(file: &Bytes) -> Result<Array, WireError> {
    let wrong = |reason| WireError::Npy { reason };
    let rest = file
        .strip_prefix(MAGIC)
        .ok_or(wrong("the magic string is missing"))?;
    let (length, width) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 2),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 4),
        _ => return Err(wrong("its version is none of 1, 2 and 3")),
    };
    let from = MAGIC.len() + 2 + width;
    let header = file
        .get(from..)
        .and_then(|rest| rest.get(..length.min(LONGEST_HEADER + 1)));
    let header = header
        .filter(|_| length <= LONGEST_HEADER)
        .ok_or(wrong("the header is too long"))?;
    let header =
        Header::parse(std::str::from_utf8(header).map_err(|_| wrong("the header is not text"))?)?;
    let dtype = Dtype::new(&header.descr)?;
    let data = file.slice(from + length..);
    if !header.is_fortran {
        return Array::new(dtype, header.shape, data);
    }
    let columns = Array::new(dtype, header.shape, data)?;
    Array::new(
        columns.dtype().clone(),
        columns.shape().to_vec(),
        rows(&columns).into(),
    )
}

/// Converts the elements of a column-major array to row-major order. The time is proportional to
/// their bytes, however many dimensions there are.
fn rows(array: &Array) -> Vec<u8> {
    match array.dtype().size() {
        1 => transposed::<1>(array),
        2 => transposed::<2>(array),
        4 => transposed::<4>(array),
        _ => transposed::<8>(array),
    }
}

/// Implements [`rows`] for elements of `N` bytes. The dimensions are divided into leading and
/// trailing ones, which makes a matrix whose rows and columns follow the order of either layout.
/// The matrix is transposed in tiles that stay in the cache.
fn transposed<const N: usize>(array: &Array) -> Vec<u8> {
    let (columns, _) = array.data().as_chunks::<N>();
    // A dimension of size 1 has no effect. Without such dimensions, incrementing an index takes a
    // constant number of steps on average.
    let edges: Vec<usize> = array
        .shape()
        .iter()
        .copied()
        .filter(|edge| *edge != 1)
        .collect();
    if edges.len() < 2 || columns.is_empty() {
        return array.data().to_vec();
    }
    let (leading, trailing) = edges.split_at(parted(&edges));
    let (height, width) = (
        leading.iter().product::<usize>(),
        trailing.iter().product::<usize>(),
    );
    let mut rows = vec![0; columns.len() * N];
    let (out, _) = rows.as_chunks_mut::<N>();
    // In the source, the first dimension varies fastest; in the result, the last one does.
    let mut row_starts = Odometer::forwards(leading, width);
    for row in (0..height).step_by(TILE) {
        let out_at: Vec<usize> = row_starts.by_ref().take(TILE.min(height - row)).collect();
        let mut column_starts = Odometer::backwards(trailing, height);
        for column in (0..width).step_by(TILE) {
            for column in column..(column + TILE).min(width) {
                let from = column_starts.next().unwrap_or_default() + row;
                for (out_at, number) in out_at.iter().zip(&columns[from..]) {
                    out[out_at + column] = *number;
                }
            }
        }
    }
    rows
}

/// Returns how many leading dimensions fill a tile; there must be at least two dimensions.
fn parted(edges: &[usize]) -> usize {
    let mut numbers = 1;
    let fills = |edge: &usize| {
        numbers *= edge;
        numbers >= TILE
    };
    edges
        .iter()
        .position(fills)
        .map_or(edges.len(), |last| last + 1)
        .min(edges.len() - 1)
}

/// Iterates over the indices of some dimensions in one layout and returns the offset of each in the
/// other layout.
struct Odometer {
    /// Index, size and stride of each dimension, the fastest one first.
    digits: Vec<[usize; 3]>,
    at: usize,
}

impl Odometer {
    /// Iterates with the first dimension as the fastest one, which is the slowest one in the other
    /// layout; its strides are multiples of `unit`.
    fn forwards(edges: &[usize], unit: usize) -> Self {
        let mut digits = Self::digits(edges.iter().rev(), unit);
        digits.reverse();
        Self { digits, at: 0 }
    }

    /// Iterates with the last dimension as the fastest one, which is the slowest one in the other
    /// layout.
    fn backwards(edges: &[usize], unit: usize) -> Self {
        let mut digits = Self::digits(edges.iter(), unit);
        digits.reverse();
        Self { digits, at: 0 }
    }

    fn digits<'a>(edges: impl Iterator<Item = &'a usize>, unit: usize) -> Vec<[usize; 3]> {
        let stride = |stride: &mut usize, edge: &usize| {
            Some([0, *edge, std::mem::replace(stride, *stride * edge)])
        };
        edges.scan(unit, stride).collect()
    }
}

impl Iterator for Odometer {
    type Item = usize;

    /// Starts again after the last index.
    fn next(&mut self) -> Option<usize> {
        let at = self.at;
        for [index, edge, stride] in &mut self.digits {
            *index += 1;
            self.at += *stride;
            if *index < *edge {
                break;
            }
            *index = 0;
            self.at -= *edge * *stride;
        }
        Some(at)
    }
}

/// The header: a Python `dict` with three known keys.
struct Header {
    descr: String,
    is_fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    fn parse(text: &str) -> Result<Self, WireError> {
        let wrong = || WireError::Npy {
            reason: "the header is not {'descr': …, 'fortran_order': …, 'shape': …}",
        };
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        let mut rest = text
            .trim()
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .ok_or_else(wrong)?
            .trim();
        while !rest.is_empty() {
            let (key, after) = quoted(rest).ok_or_else(wrong)?;
            let value = after
                .trim_start()
                .strip_prefix(':')
                .ok_or_else(wrong)?
                .trim_start();
            rest = match key {
                "descr" => {
                    // A list describes a record type.
                    let (text, after) = quoted(value).ok_or(WireError::Dtype {
                        found: "a record".to_owned(),
                    })?;
                    descr = Some(text.to_owned());
                    after
                }
                "fortran_order" => {
                    let (flag, after) = ["True", "False"]
                        .iter()
                        .find_map(|word| Some((*word == "True", value.strip_prefix(word)?)))
                        .ok_or_else(wrong)?;
                    is_fortran = Some(flag);
                    after
                }
                "shape" => {
                    let (inside, after) = value
                        .strip_prefix('(')
                        .and_then(|v| v.split_once(')'))
                        .ok_or_else(wrong)?;
                    let edges = inside
                        .split(',')
                        .map(str::trim)
                        .filter(|edge| !edge.is_empty());
                    let edges: Vec<usize> = edges
                        .map(str::parse)
                        .collect::<Result<_, _>>()
                        .map_err(|_| wrong())?;
                    shape = Some(edges).filter(|edges| edges.len() <= MOST_EDGES);
                    after
                }
                _ => return Err(wrong()),
            }
            .trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        match (descr, is_fortran, shape) {
            (Some(descr), Some(is_fortran), Some(shape)) => Ok(Self {
                descr,
                is_fortran,
                shape,
            }),
            _ => Err(wrong()),
        }
    }
}

/// Splits off a quoted string, and returns it with the text after it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text
        .chars()
        .next()
        .filter(|quote| matches!(quote, '\'' | '"'))?;
    text[1..].split_once(quote)
}
