//! Paths in messages and records, in the form of [`FilePath`].
//!
//! File names need not be UTF-8, and a command can choose a name that `PathBuf` can't serialize. This module is used as
//! `#[serde(with = "stored_path")]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::FilePath;

/// Serializes a value with paths.
///
/// # Errors
///
/// Fails if the format does.
pub(super) fn serialize<V: WithPaths, S: Serializer>(
    value: &V,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.to_stored().serialize(serializer)
}

/// Deserializes a value with paths.
///
/// # Errors
///
/// Fails if the value has another form.
pub(super) fn deserialize<'de, V: WithPaths, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<V, D::Error> {
    let stored = V::Stored::deserialize(deserializer)?;
    V::from_stored(stored).ok_or_else(|| D::Error::custom("invalid path"))
}

/// A value that contains paths.
pub(super) trait WithPaths: Sized {
    /// The serialized form.
    type Stored: Serialize + DeserializeOwned;

    /// Returns the serialized form.
    fn to_stored(&self) -> Self::Stored;

    /// Returns the value of a serialized form; `None` if it is invalid.
    fn from_stored(stored: Self::Stored) -> Option<Self>;
}

impl WithPaths for PathBuf {
    type Stored = String;

    fn to_stored(&self) -> String {
        FilePath::new(self).to_text()
    }

    fn from_stored(stored: String) -> Option<Self> {
        FilePath::from_text(&stored).map(|path| path.as_path().to_owned())
    }
}

impl<V: WithPaths> WithPaths for Vec<V> {
    type Stored = Vec<V::Stored>;

    fn to_stored(&self) -> Self::Stored {
        self.iter().map(V::to_stored).collect()
    }

    fn from_stored(stored: Self::Stored) -> Option<Self> {
        stored.into_iter().map(V::from_stored).collect()
    }
}

impl<V: WithPaths> WithPaths for Option<V> {
    type Stored = Option<V::Stored>;

    fn to_stored(&self) -> Self::Stored {
        self.as_ref().map(V::to_stored)
    }

    fn from_stored(stored: Self::Stored) -> Option<Self> {
        stored.map_or(Some(None), |stored| V::from_stored(stored).map(Some))
    }
}

impl<V: WithPaths> WithPaths for BTreeMap<PathBuf, V> {
    type Stored = BTreeMap<String, V::Stored>;

    fn to_stored(&self) -> Self::Stored {
        self.iter().map(|(path, value)| (path.to_stored(), value.to_stored())).collect()
    }

    fn from_stored(stored: Self::Stored) -> Option<Self> {
        let entry = |(path, value)| Some((PathBuf::from_stored(path)?, V::from_stored(value)?));
        stored.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Example {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super")]
        list: Vec<PathBuf>,
        #[serde(with = "super")]
        may_be: Option<PathBuf>,
        #[serde(with = "super")]
        map: BTreeMap<PathBuf, PathBuf>,
    }

    #[test]
    fn every_path_is_read_as_it_was_written() {
        let odd = PathBuf::from(OsString::from_vec(b"/a/\xff\xc3\x00b".to_vec()));
        let example = Example {
            one: odd.clone(),
            list: vec!["/plain/ü".into(), odd.clone()],
            may_be: Some(odd.clone()),
            map: BTreeMap::from([(odd.clone(), odd), ("".into(), "x".into())]),
        };
        let text = serde_json::to_string(&example).unwrap();
        assert_eq!(serde_json::from_str::<Example>(&text).unwrap(), example);
        // Records of older versions contain plain text.
        assert!(text.contains("\"/plain/ü\""), "{text}");
        for wrong in ["\"\\u0000f\"", "\"\\u0000xx\""] {
            let text = format!("{{\"one\":{wrong},\"list\":[],\"may_be\":null,\"map\":{{}}}}");
            assert!(serde_json::from_str::<Example>(&text).is_err(), "{wrong}");
        }
    }
}
