//! Writes the learning curve of a training as a table, and draws its losses.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Columns of the table.
pub const COLUMNS: [&str; 9] = [
    "step",
    "seconds",
    "learning_rate",
    "flow_loss",
    "auxiliary_loss",
    "goal_on_table_cm",
    "object_on_table_cm",
    "goal_from_hand_cm",
    "object_from_hand_cm",
];

/// A table to which rows are appended.
pub struct Curve {
    file: File,
}

impl Curve {
    /// Opens the table at `path`, or creates it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.is_file();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        if is_new {
            writeln!(file, "{}", COLUMNS.join(","))?;
        }
        Ok(Self { file })
    }

    /// Appends a row.
    pub fn add(&mut self, values: &[f64]) -> io::Result<()> {
        writeln!(
            self.file,
            "{}",
            values
                .iter()
                .map(|value| format!("{value:.6}"))
                .collect::<Vec<_>>()
                .join(",")
        )
    }
}

/// Width, height and margin of the drawing, in pixels.
const SIZE: (f64, f64, f64) = (640.0, 320.0, 40.0);

/// The columns that are drawn, with their colours.
const LINES: [(usize, &str); 3] = [(3, "#1f77b4"), (4, "#2ca02c"), (7, "#d62728")];

/// Draws the table as SVG. The vertical axis is logarithmic, and scaled for each line separately.
pub fn draw(table: &Path, picture: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(table)?;
    let rows: Vec<Vec<f64>> = text
        .lines()
        .skip(1)
        .map(|line| {
            line.split(',')
                .filter_map(|cell| cell.parse().ok())
                .collect()
        })
        .collect();
    let (width, height, margin) = SIZE;
    let last = rows
        .last()
        .and_then(|row| row.first())
        .copied()
        .unwrap_or(1.0)
        .max(1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">\n"
    );
    let _ = writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    for (at, (column, colour)) in LINES.iter().enumerate() {
        let values = || {
            rows.iter()
                .filter_map(|row| Some((row.first()?, row.get(*column)?.max(1e-4))))
        };
        let (low, high) = values().fold((f64::MAX, f64::MIN), |(low, high), (_, y)| {
            (low.min(y), high.max(y))
        });
        let span = (high / low).ln().max(1e-6);
        let points: Vec<_> = values()
            .map(|(x, y)| {
                let across = margin + x / last * (width - 2.0 * margin);
                let up = margin + (high / y).ln() / span * (height - 2.0 * margin);
                format!("{across:.1},{up:.1}")
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>",
            points.join(" ")
        );
        let (name, y) = (COLUMNS[*column], 16.0 + 14.0 * at as f64);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{y}\" font-size=\"12\" fill=\"{colour}\">{name}: {high:.3} to {low:.3}</text>",
            width / 2.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{margin}\" y=\"{}\" font-size=\"12\">steps 0 to {last}</text>\n</svg>",
        height - 8.0
    );
    std::fs::write(picture, svg)
}
