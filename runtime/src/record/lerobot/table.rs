//! Writes Parquet files in the form that pandas uses: columns of numbers or texts, or of lists of
//! equal length.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jobs::layout::write_whole_with;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type,
};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::record::RowAccessor as _;
use parquet::schema::types::{Type, TypePtr};

use crate::record::RecordError;

/// The values of one column; lists are concatenated.
#[derive(Clone, Debug)]
pub(super) enum Values {
    /// Booleans, too: 0 or 1.
    Numbers(Physical, Vec<f64>),
    Text(Vec<String>),
}

/// One column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) values: Values,
    /// Length of every list; `None` for single values.
    pub(super) list: Option<usize>,
}

impl Column {
    /// Creates a column with one value per row.
    pub(super) fn of(name: impl Into<String>, values: Values) -> Self {
        Self {
            name: name.into(),
            values,
            list: None,
        }
    }

    /// Creates a column with one number per row.
    pub(super) fn numbers(
        name: impl Into<String>,
        kind: Physical,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self::of(name, Values::Numbers(kind, values.into_iter().collect()))
    }

    /// Returns the type of its values in `info.json`.
    pub(super) fn dtype(&self) -> &'static str {
        match self.values {
            Values::Numbers(Physical::BOOLEAN, _) => "bool",
            Values::Numbers(Physical::FLOAT, _) => "float32",
            Values::Numbers(Physical::DOUBLE, _) => "float64",
            Values::Numbers(..) => "int64",
            Values::Text(_) => "string",
        }
    }

    /// Returns the schema: optional fields, as pandas writes them, and lists in the three levels of
    /// the Parquet format, "Nested Types: Lists".
    fn schema(&self) -> Result<TypePtr> {
        let (physical, logical) = match self.values {
            Values::Numbers(kind, _) => (kind, None),
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let name = self.list.map_or(&*self.name, |_| "element");
        let value = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        if self.list.is_none() {
            return Ok(Arc::new(value));
        }
        let list = Type::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![Arc::new(value)]);
        let list = Type::group_type_builder(&self.name)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(list.build()?)]);
        list.build().map(Arc::new)
    }

    fn write(&self, to: &mut SerializedColumnWriter) -> Result<()> {
        let (kind, values) = match &self.values {
            Values::Numbers(kind, values) => (kind, values.iter()),
            Values::Text(values) => {
                let values = values.iter().map(|text| ByteArray::from(text.as_str()));
                return self.write_as::<ByteArrayType>(to, values.collect());
            }
        };
        match kind {
            Physical::BOOLEAN => self.write_as::<BoolType>(to, values.map(|v| *v != 0.0).collect()),
            Physical::FLOAT => self.write_as::<FloatType>(to, values.map(|v| *v as f32).collect()),
            Physical::DOUBLE => self.write_as::<DoubleType>(to, values.copied().collect()),
            _ => self.write_as::<Int64Type>(to, values.map(|v| *v as i64).collect()),
        }
    }

    /// Writes the values with their levels: no value is missing, and all but the first of a list
    /// continue it.
    fn write_as<T: DataType>(
        &self,
        to: &mut SerializedColumnWriter,
        values: Vec<T::T>,
    ) -> Result<()> {
        let depth = if self.list.is_some() { 3 } else { 1 };
        let levels = vec![depth; values.len()];
        let goes_on = self.list.map(|length| {
            let goes_on = (0..values.len()).map(|at| i16::from(at % length.max(1) != 0));
            goes_on.collect::<Vec<_>>()
        });
        let writer = to.typed::<T>();
        writer.write_batch(&values, Some(&levels), goes_on.as_deref())?;
        Ok(())
    }
}

/// Writes a file and moves it into place by a rename; `note` is a metadata key with its text.
pub(super) fn write(
    path: &Path,
    columns: &[&Column],
    note: Option<(&str, String)>,
) -> std::result::Result<(), RecordError> {
    let written = write_whole_with(path, |file| {
        // Parquet's writer has a buffer of its own; nothing is in this one.
        write_to(file.get_mut(), columns, note).map_err(io::Error::other)
    });
    written.map_err(|err| RecordError::file(path, err))
}

fn write_to(file: &mut File, columns: &[&Column], note: Option<(&str, String)>) -> Result<()> {
    let fields = columns.iter().map(|column| column.schema());
    let schema = Type::group_type_builder("schema").with_fields(fields.collect::<Result<_>>()?);
    let notes = note.map(|(key, text)| vec![KeyValue::new(key.to_owned(), text)]);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_key_value_metadata(notes)
        .build();
    let (schema, properties) = (Arc::new(schema.build()?), Arc::new(properties));
    let mut writer = SerializedFileWriter::new(file, schema, properties)?;
    let mut rows = writer.next_row_group()?;
    for column in columns {
        if let Some(mut writer) = rows.next_column()? {
            column.write(&mut writer)?;
            writer.close()?;
        }
    }
    rows.close()?;
    writer.close()?;
    Ok(())
}

/// Reads the numbers and texts of a file with one column of each.
pub(super) fn read_tasks(path: &Path) -> Result<Vec<(i64, String)>> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let rows = reader.get_row_iter(None)?.map(|row| {
        let row = row?;
        Ok((row.get_long(0)?, row.get_string(1)?.clone()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks.parquet");
        let texts = Values::Text(vec!["lift the cube".to_owned(), "öffne".to_owned()]);
        let columns = [
            Column::numbers("task_index", Physical::INT64, [0.0, 1.0]),
            Column::of("task", texts),
        ];
        write(&path, &columns.each_ref(), None).unwrap();
        assert_eq!(
            read_tasks(&path).unwrap(),
            [(0, "lift the cube".to_owned()), (1, "öffne".to_owned())]
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn lists_have_as_many_values_as_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.parquet");
        let mut lists = Column::numbers("action", Physical::FLOAT, [1.0, 2.0, 3.0, 4.0]);
        lists.list = Some(2);
        write(&path, &[&lists], None).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        assert_eq!(rows, ["{action: [1.0, 2.0]}", "{action: [3.0, 4.0]}"]);
    }
}
