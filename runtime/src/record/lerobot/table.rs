//! Writes Parquet files in the form that pandas uses: columns of numbers or texts, or of lists of
//! equal length.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
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

/// The values of one column; lists are concatenated.
#[derive(Clone, Debug)]
pub(super) enum ColumnValues {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
    Text(Vec<String>),
}

/// One column.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    /// Its name.
    pub(super) name: String,
    /// Its values, row by row.
    pub(super) values: ColumnValues,
    /// Length of every list; `None` for single values.
    pub(super) list: Option<usize>,
}

impl TableColumn {
    /// Creates a column with one value per row.
    pub(super) fn of(name: impl Into<String>, values: ColumnValues) -> Self {
        Self {
            name: name.into(),
            values,
            list: None,
        }
    }

    /// Creates a column with a list of `length` values per row.
    pub(super) fn of_lists(name: impl Into<String>, values: ColumnValues, length: usize) -> Self {
        Self {
            name: name.into(),
            values,
            list: Some(length),
        }
    }

    /// Creates the column of a feature with `width` values per row. lerobot stores one of shape [1]
    /// as a plain column.
    pub(super) fn feature(name: &str, values: ColumnValues, width: usize) -> Self {
        match width {
            1 => Self::of(name, values),
            _ => Self::of_lists(name, values, width),
        }
    }

    /// Returns the schema: optional fields, as pandas writes them, and lists in the three levels of
    /// the Parquet format, "Nested Types: Lists".
    fn schema(&self) -> Result<TypePtr> {
        let (physical, logical, converted) = match self.values {
            ColumnValues::F32(_) => (Physical::FLOAT, None, ConvertedType::NONE),
            ColumnValues::F64(_) => (Physical::DOUBLE, None, ConvertedType::NONE),
            ColumnValues::I64(_) => (Physical::INT64, None, ConvertedType::NONE),
            ColumnValues::Bool(_) => (Physical::BOOLEAN, None, ConvertedType::NONE),
            ColumnValues::Text(_) => (
                Physical::BYTE_ARRAY,
                Some(LogicalType::String),
                ConvertedType::UTF8,
            ),
        };
        let name = if self.list.is_some() {
            "element"
        } else {
            &self.name
        };
        let value =
            Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
        let value = Arc::new(
            value
                .with_logical_type(logical)
                .with_converted_type(converted)
                .build()?,
        );
        if self.list.is_none() {
            return Ok(value);
        }
        let list = Type::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![value]);
        let list = Type::group_type_builder(&self.name)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(LogicalType::List))
            .with_converted_type(ConvertedType::LIST)
            .with_fields(vec![Arc::new(list.build()?)]);
        list.build().map(Arc::new)
    }

    fn write(&self, column: &mut SerializedColumnWriter) -> Result<()> {
        match &self.values {
            ColumnValues::F32(values) => self.write_as::<FloatType>(column, values),
            ColumnValues::F64(values) => self.write_as::<DoubleType>(column, values),
            ColumnValues::I64(values) => self.write_as::<Int64Type>(column, values),
            ColumnValues::Bool(values) => self.write_as::<BoolType>(column, values),
            ColumnValues::Text(values) => {
                let values: Vec<ByteArray> = values
                    .iter()
                    .map(|text| ByteArray::from(text.as_str()))
                    .collect();
                self.write_as::<ByteArrayType>(column, &values)
            }
        }
    }

    /// Writes the values with their levels: no value is missing, and all but the first of a list
    /// continue it.
    fn write_as<T: DataType>(
        &self,
        column: &mut SerializedColumnWriter,
        values: &[T::T],
    ) -> Result<()> {
        let writer = column.typed::<T>();
        match self.list {
            None => writer.write_batch(values, Some(&vec![1; values.len()]), None)?,
            Some(length) => {
                let goes_on: Vec<i16> = (0..values.len())
                    .map(|at| i16::from(at % length.max(1) != 0))
                    .collect();
                writer.write_batch(values, Some(&vec![3; values.len()]), Some(&goes_on))?
            }
        };
        Ok(())
    }
}

/// Writes a file and moves it into place by a rename; `note` is a metadata key with its text.
pub(super) fn write(
    path: &Path,
    columns: &[TableColumn],
    note: Option<(&str, String)>,
) -> Result<()> {
    let fields = columns
        .iter()
        .map(TableColumn::schema)
        .collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(
        Type::group_type_builder("schema")
            .with_fields(fields)
            .build()?,
    );
    let notes = note.map(|(key, text)| vec![KeyValue::new(key.to_owned(), text)]);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_key_value_metadata(notes)
        .build();
    let temporary = path.with_added_extension("tmp");
    let file = File::create(&temporary)?;
    let mut writer = SerializedFileWriter::new(&file, schema, Arc::new(properties))?;
    let mut rows = writer.next_row_group()?;
    for column in columns {
        if let Some(mut writer) = rows.next_column()? {
            column.write(&mut writer)?;
            writer.close()?;
        }
    }
    rows.close()?;
    writer.close()?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
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
        let texts = ColumnValues::Text(vec!["lift the cube".to_owned(), "öffne".to_owned()]);
        let columns = [
            TableColumn::of("task_index", ColumnValues::I64(vec![0, 1])),
            TableColumn::of("task", texts),
        ];
        write(&path, &columns, None).unwrap();
        assert_eq!(
            read_tasks(&path).unwrap(),
            [(0, "lift the cube".to_owned()), (1, "öffne".to_owned())]
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn lists_have_as_many_values_as_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.parquet");
        let lists = TableColumn::of_lists("action", ColumnValues::F32(vec![1.0, 2.0, 3.0, 4.0]), 2);
        write(&path, &[lists], None).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        assert_eq!(rows, ["{action: [1.0, 2.0]}", "{action: [3.0, 4.0]}"]);
    }
}
