//! Declarations of settings: one for each key, with its type, default, range, merging and option.
//!
//! [`section!`] makes a struct of a section; each field is declared by a [`Field`], whose doc comment is the key's
//! description wherever users see one. Reading a table and describing the keys are the same walk over the declarations.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use super::key_spec::{KeyOption, KeySpec, MergeStrategy, UntrustedChange, ValueType};
use super::setting_value::SettingValue;
use super::settings_reader::{Field, SettingsReader};
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

/// A key with values of type `T`; `K` is the kind of key, which determines what an unset key yields.
pub(super) struct Key<T, K> {
    kind: K,
    spec: KeySpec,
    is_known: bool,
    values: PhantomData<T>,
}

/// A key that is not set has this value.
pub(super) struct DefaultValue<T>(T);
/// A key that is not set has no value.
pub(super) struct Optional;
/// The key has to be set.
pub(super) struct Required;
/// A table whose names are free.
pub(super) struct Pairs;
/// A list of named tables, each read by this function; the lists of all layers are concatenated.
pub(super) struct Tables<F>(F);

/// Declares a key with a default.
pub(super) fn default<T: SettingValue>(value: T) -> Key<T, DefaultValue<T>> {
    Key::new(DefaultValue(value), T::value_type())
}

/// Declares a key without a default.
pub(super) fn optional<T: SettingValue>() -> Key<T, Optional> {
    Key::new(Optional, T::value_type())
}

/// Declares a key of a list's entry that has to be set.
pub(super) fn required<T: SettingValue>() -> Key<T, Required> {
    let mut key = Key::new(Required, T::value_type());
    key.spec.is_required = true;
    key
}

/// Declares a table whose names are free.
pub(super) fn map<T: SettingValue>() -> Key<T, Pairs> {
    Key::new(Pairs, ValueType::Map(Box::new(T::value_type())))
}

/// Declares a list of tables with names.
pub(super) fn table_list<T, F>(read: F) -> Key<T, Tables<F>>
where
    F: FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>,
{
    Key::new(Tables(read), ValueType::Tables(Vec::new()))
}

/// Declares a field that is not a key and has this value.
pub(super) fn given<T>(value: T) -> impl FnOnce(&'static str, &str, &mut SettingsReader<'_>) -> T {
    move |_, _, _| value
}

/// Declares a table of keys.
pub(super) fn table<T>(
    read: impl FnOnce(&mut SettingsReader<'_>) -> T,
) -> impl FnOnce(&'static str, &str, &mut SettingsReader<'_>) -> T {
    move |name, doc, from| from.section(name, doc, read)
}

/// Declares tables under names that the user chooses.
pub(super) fn named_tables<T>(
    read: impl FnMut(&mut SettingsReader<'_>) -> T,
) -> impl FnOnce(&'static str, &str, &mut SettingsReader<'_>) -> BTreeMap<ConfigName, T> {
    move |name, doc, from| from.named_tables(name, doc, read)
}

impl<T, K> Key<T, K> {
    fn new(kind: K, value_type: ValueType) -> Self {
        let spec = KeySpec { value_type, ..KeySpec::default() };
        Self { kind, spec, is_known: true, values: PhantomData }
    }

    /// Limits the values.
    pub(super) fn range(mut self, range: RangeInclusive<T>) -> Self
    where
        T: SettingValue,
    {
        self.spec.range = Some((range.start().to_value(), range.end().to_value()));
        self
    }

    /// Concatenates the lists of all layers.
    pub(super) fn append(mut self) -> Self {
        self.spec.merge = MergeStrategy::Append;
        self
    }

    /// Lets an untrusted project change the key.
    pub(super) fn untrusted(mut self, untrusted: UntrustedChange) -> Self {
        self.spec.untrusted = untrusted;
        self
    }

    /// Lets an option of the command line set the key.
    pub(super) fn option(mut self, option: KeyOption) -> Self {
        self.spec.option = Some(option);
        self
    }

    /// Sets the example value in the template, as TOML.
    pub(super) fn example(mut self, example: &'static str) -> Self {
        self.spec.example = Some(example);
        self
    }

    /// Makes the key unknown unless a condition holds.
    pub(super) fn only_if(self, is_known: bool) -> Self {
        Self { is_known, ..self }
    }
}

impl<T: SettingValue> Field for Key<T, DefaultValue<T>> {
    type Output = T;

    fn read(mut self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        let DefaultValue(default) = self.kind;
        self.spec.default = Some(default.to_value());
        let found = if from.knows(self.is_known) { from.value(name, doc, self.spec) } else { None };
        found.unwrap_or(default)
    }
}

impl<T: SettingValue> Field for Key<T, Optional> {
    type Output = Option<T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Option<T> {
        if from.knows(self.is_known) { from.value(name, doc, self.spec) } else { None }
    }
}

/// A missing value is a problem, and no configuration with problems is used; until then, an empty value stands for it.
impl<T: SettingValue + Default> Field for Key<T, Required> {
    type Output = T;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> T {
        from.value(name, doc, self.spec).unwrap_or_default()
    }
}

impl<T: SettingValue> Field for Key<T, Pairs> {
    type Output = BTreeMap<String, T>;

    fn read(
        mut self,
        name: &'static str,
        doc: &str,
        from: &mut SettingsReader<'_>,
    ) -> Self::Output {
        if !from.knows(self.is_known) {
            return BTreeMap::new();
        }
        self.spec.default = Some(ConfigValue::Table(ConfigTable::new()));
        from.declare(name, doc, self.spec);
        from.string_map(name)
    }
}

impl<T, F> Field for Key<T, Tables<F>>
where
    F: FnMut(ConfigName, &mut SettingsReader<'_>) -> Option<T>,
{
    type Output = Vec<T>;

    fn read(self, name: &'static str, doc: &str, from: &mut SettingsReader<'_>) -> Vec<T> {
        from.table_list(name, doc, self.spec, self.kind.0)
    }
}
