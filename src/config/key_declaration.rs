//! Declarations of settings: one for each key, with its type, default, range, merging and option.
//!
//! [`section!`] makes a struct of a section; each field is declared by a [`Field`], whose doc comment is the key's
//! description wherever users see one. Reading a table and describing the keys are the same walk over the declarations.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use super::keys::{KeyOption, KeySpec, MergeStrategy, UntrustedChange};
use super::setting_value::{SettingValue, ValueType};
use super::settings_reader::SettingsReader;
use super::text_types::ConfigName;
use super::value_tree::{ConfigTable, ConfigValue};

/// Declares the struct of a section, and how it is read from a table.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $vis:vis struct $Name:ident $(($($parameter:ident: $Parameter:ty),+))? {
            $( $(#[doc = $doc:literal])+ $field:ident: $Type:ty = $declaration:expr, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        $vis struct $Name {
            $( $(#[doc = $doc])+ $vis $field: $Type, )+
        }

        impl $Name {
            pub(in crate::config) fn read(
                $($($parameter: $Parameter,)+)?
                from: &mut $crate::config::settings_reader::SettingsReader<'_>,
            ) -> Self {
                Self {
                    $( $field: from.read(stringify!($field), concat!($($doc, "\n"),+), $declaration), )+
                }
            }
        }
    };
}
pub(super) use section;

/// The declaration of a field of a section.
pub(super) trait Field {
    /// The type of the field.
    type Output;

    /// Reads the field; what is wrong is noted by the reader.
    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Self::Output;
}

/// A key with a plain value; `K` says what holds when it is not set.
pub(super) struct Key<T, K> {
    unset: K,
    range: Option<Range<T>>,
    merge: MergeStrategy,
    untrusted: UntrustedChange,
    option: Option<KeyOption>,
    example: Option<&'static str>,
    is_known: bool,
}

type Range<T> = (RangeInclusive<T>, fn(&RangeInclusive<T>, &T) -> bool);

/// A key that is not set has this value.
pub(super) struct DefaultValue<T>(T);
/// A key that is not set has no value.
pub(super) struct Optional;
/// The key has to be set.
pub(super) struct Required;

/// Declares a key with a default.
pub(super) fn default<T: SettingValue>(value: T) -> Key<T, DefaultValue<T>> {
    Key::new(DefaultValue(value))
}

/// Declares a key without a default.
pub(super) fn optional<T: SettingValue>() -> Key<T, Optional> {
    Key::new(Optional)
}

/// Declares a key of a list's entry that has to be set.
pub(super) fn required<T: SettingValue>() -> Key<T, Required> {
    Key::new(Required)
}

impl<T: SettingValue, K> Key<T, K> {
    fn new(unset: K) -> Self {
        Self {
            unset,
            range: None,
            merge: MergeStrategy::Replace,
            untrusted: UntrustedChange::Denied,
            option: None,
            example: None,
            is_known: true,
        }
    }

    /// Limits the values.
    pub(super) fn range(self, range: RangeInclusive<T>) -> Self
    where
        T: PartialOrd,
    {
        Self { range: Some((range, RangeInclusive::contains)), ..self }
    }

    /// Lets the items of all layers add up.
    pub(super) fn append(self) -> Self {
        Self { merge: MergeStrategy::Append, ..self }
    }

    /// Lets an untrusted project change the key.
    pub(super) fn untrusted(self, untrusted: UntrustedChange) -> Self {
        Self { untrusted, ..self }
    }

    /// Lets an option of the command line set the key.
    pub(super) fn option(self, option: KeyOption) -> Self {
        Self { option: Some(option), ..self }
    }

    /// Gives the template a value to show, as TOML.
    pub(super) fn example(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }

    /// Makes the key unknown unless a condition holds.
    pub(super) fn only_if(self, is_known: bool) -> Self {
        Self { is_known, ..self }
    }

    /// Returns the value that is set, after noting what is wrong with it.
    fn find(
        &self,
        name: &'static str,
        doc: &str,
        default: Option<&T>,
        is_required: bool,
        from: &mut SettingsReader<'_>,
    ) -> Option<T> {
        let ends = |range: &RangeInclusive<T>| (range.start().to_value(), range.end().to_value());
        from.declare(|path| KeySpec {
            option: self.option,
            default: default.map(T::to_value),
            range: self.range.as_ref().map(|(range, _)| ends(range)),
            example: self.example,
            is_required,
            merge: self.merge,
            untrusted: self.untrusted,
            ..KeySpec::new(path, name, doc, T::value_type())
        });
        let range_error = |value: &T| {
            let (range, contains) = self.range.as_ref()?;
            let (least, most) = ends(range);
            (!contains(range, value)).then(|| format!("between {least} and {most}"))
        };
        if is_required && !from.is_set(name) {
            from.report_missing(name);
            return None;
        }
        from.value(name, default, range_error)
    }
}

impl<T: SettingValue> Field for Key<T, DefaultValue<T>> {
    type Output = T;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        if !from.knows(self.is_known) {
            return self.unset.0;
        }
        let found = self.find(name, doc, Some(&self.unset.0), false, from);
        found.unwrap_or(self.unset.0)
    }
}

impl<T: SettingValue> Field for Key<T, Optional> {
    type Output = Option<T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Option<T> {
        if !from.knows(self.is_known) {
            return None;
        }
        self.find(name, doc, None, false, from)
    }
}

/// A missing value is a problem, with which no configuration is used; until then an empty one stands for it.
impl<T: SettingValue + Default> Field for Key<T, Required> {
    type Output = T;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        self.find(name, doc, None, true, from).unwrap_or_default()
    }
}

/// A field that is no key.
pub(super) struct Given<T>(T);

/// Declares a field that is no key: it has this value.
pub(super) fn given<T>(value: T) -> Given<T> {
    Given(value)
}

impl<T> Field for Given<T> {
    type Output = T;

    fn read(self, _: &'static str, _: &str, _: &mut SettingsReader<'_>) -> T {
        self.0
    }
}

/// A table of keys.
pub(super) struct Section<F>(F);

/// Declares a table of keys.
pub(super) fn table<T, F: FnOnce(&mut SettingsReader<'_>) -> T>(read: F) -> Section<F> {
    Section(read)
}

impl<T, F: FnOnce(&mut SettingsReader<'_>) -> T> Field for Section<F> {
    type Output = T;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        from.section(name, doc, self.0)
    }
}

/// Tables under names that the user chooses.
pub(super) struct NamedTables<F>(F);

/// Declares tables under names that the user chooses.
pub(super) fn named_tables<T, F: FnMut(&mut SettingsReader<'_>) -> T>(read: F) -> NamedTables<F> {
    NamedTables(read)
}

impl<T, F: FnMut(&mut SettingsReader<'_>) -> T> Field for NamedTables<F> {
    type Output = BTreeMap<ConfigName, T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Self::Output {
        from.named_tables(name, doc, self.0)
    }
}

/// A list of tables with names; the layers add up.
pub(super) struct TableList<F> {
    read: F,
    example: Option<&'static str>,
}

/// Declares a list of tables with names.
pub(super) fn table_list<T, F: FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>>(
    read: F,
) -> TableList<F> {
    TableList { read, example: None }
}

impl<F> TableList<F> {
    /// Gives the template entries to show, as TOML.
    pub(super) fn example(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }
}

impl<T, F: FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>> Field for TableList<F> {
    type Output = Vec<T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Vec<T> {
        from.table_list(name, doc, self.example, self.read)
    }
}

/// A table whose names are free.
pub(super) struct Map<T> {
    example: Option<&'static str>,
    is_known: bool,
    values: PhantomData<T>,
}

/// Declares a table whose names are free.
pub(super) fn map<T: SettingValue>() -> Map<T> {
    Map { example: None, is_known: true, values: PhantomData }
}

impl<T: SettingValue> Map<T> {
    /// Gives the template a value to show, as TOML.
    pub(super) fn example(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }

    /// Makes the key unknown unless a condition holds.
    pub(super) fn only_if(self, is_known: bool) -> Self {
        Self { is_known, ..self }
    }
}

impl<T: SettingValue> Field for Map<T> {
    type Output = BTreeMap<String, T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Self::Output {
        if !from.knows(self.is_known) {
            return BTreeMap::new();
        }
        from.declare(|path| KeySpec {
            default: Some(ConfigValue::Table(ConfigTable::new())),
            example: self.example,
            ..KeySpec::new(path, name, doc, ValueType::Map(Box::new(T::value_type())))
        });
        from.string_map(name)
    }
}
