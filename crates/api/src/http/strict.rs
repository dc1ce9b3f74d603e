//! A deserializer that reads an object only from a JSON object, and a word only from a JSON string. Serde alone would read an
//! array as the fields of an object in their order, and would answer a wrong type of a word without the words that it expects.

use std::fmt;

use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, Unexpected, Visitor,
        value::{MapAccessDeserializer, StrDeserializer},
    },
};

/// A deserializer, a visitor, an access or a seed whose objects and words are strict, also the nested ones.
pub(super) struct Strict<T>(pub T);

macro_rules! forward {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Strict(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forward!(
        deserialize_any,
        deserialize_bool,
        deserialize_i8,
        deserialize_i16,
        deserialize_i32,
        deserialize_i64,
        deserialize_i128,
        deserialize_u8,
        deserialize_u16,
        deserialize_u32,
        deserialize_u64,
        deserialize_u128,
        deserialize_f32,
        deserialize_f64,
        deserialize_char,
        deserialize_str,
        deserialize_string,
        deserialize_bytes,
        deserialize_byte_buf,
        deserialize_option,
        deserialize_unit,
        deserialize_seq,
        deserialize_map,
        deserialize_identifier,
        deserialize_ignored_any
    );

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Strict(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Strict(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Strict(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Strict(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Strict(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Word { variants, visitor })
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    visit!(
        visit_bool: bool,
        visit_i64: i64,
        visit_i128: i128,
        visit_u64: u64,
        visit_u128: u128,
        visit_f64: f64,
        visit_char: char,
        visit_str: &str,
        visit_borrowed_str: &'de str,
        visit_string: String,
        visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8],
        visit_byte_buf: Vec<u8>
    );

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(fields))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, word: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(word)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(from))
    }
}

/// Reads one of several words. A variant with content is an object with one field.
struct Word<V> {
    variants: &'static [&'static str],
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Word<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.variants.iter().map(|word| format!("`{word}`")).collect();
        write!(formatter, "one of {}", words.join(", "))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<V::Value, E> {
        self.visitor.visit_enum(StrDeserializer::new(word))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        if self.variants.is_empty() {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        }
        self.visitor.visit_enum(MapAccessDeserializer::new(Strict(fields)))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, de::DeserializeOwned};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct To {
        channel: String,
        to: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Class {
        High,
        Low,
        Other(u32),
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        #[serde(default)]
        to: Option<To>,
        #[serde(default)]
        list: Vec<To>,
        #[serde(default)]
        class: Option<Class>,
        #[serde(default)]
        any: Value,
        #[serde(default)]
        number: f32,
    }

    fn read<T: DeserializeOwned>(json: &Value) -> Result<T, String> {
        let text = json.to_string();
        T::deserialize(Strict(&mut serde_json::Deserializer::from_str(&text))).map_err(|e| e.to_string())
    }

    #[test]
    fn strict_objects_and_words_are_read_like_those_of_serde() {
        let to = json!({"channel": "a", "to": "b"});
        let any = json!({"x": [1, {"y": null}], "z": 1.5});
        for class in [json!("high"), json!({"other": 3}), json!(null)] {
            let json = json!({"to": to, "list": [to, to], "class": class, "any": any, "number": 2});
            let wanted: All = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(read::<All>(&json), Ok(wanted));
        }
        assert_eq!(read::<All>(&json!({"to": null})).unwrap().to, None);
    }

    #[test]
    fn strict_objects_are_no_arrays_and_wrong_words_are_answered_with_the_words() {
        for (json, wanted) in [
            (json!({"to": ["a", "b"]}), "invalid type: sequence, expected struct To"),
            (json!({"to": []}), "invalid type: sequence, expected struct To"),
            (json!({"list": [["a", "b"]]}), "invalid type: sequence, expected struct To"),
            (json!({"class": 5}), "invalid type: integer `5`, expected one of `high`, `low`, `other`"),
            (json!({"class": ["high"]}), "invalid type: sequence, expected one of `high`"),
            (json!({"class": "hgih"}), "unknown variant `hgih`, expected one of `high`"),
            (json!({"to": {"channel": "a", "to": "b", "c": 1}}), "unknown field `c`"),
        ] {
            let error = read::<All>(&json).unwrap_err();
            assert!(error.contains(wanted), "{json}: {error}");
        }
    }
}
