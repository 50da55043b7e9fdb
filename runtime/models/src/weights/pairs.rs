//! Reads a JSON object as a list of pairs, because a map would silently keep the last of two equal
//! names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// The names and values of an object, in order.
pub(super) struct JsonPairs<V>(pub(super) Vec<(String, V)>);

impl<V> JsonPairs<V> {
    /// Returns a name that occurs twice, if there is one.
    pub(super) fn duplicate(&self) -> Option<&str> {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
            .windows(2)
            .find(|pair| pair[0] == pair[1])
            .map(|pair| pair[0])
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for JsonPairs<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
    type Value = JsonPairs<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(JsonPairs(pairs))
    }
}
