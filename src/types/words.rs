//! Enums whose variants are written as words: in configuration files, as options, in outputs.

/// An enum with one word for each variant. If variants have an order of strictness, the strictest is first.
pub trait WordEnum: Copy + PartialEq + 'static {
    /// Every variant with its word.
    const WORDS: &'static [(&'static str, Self)];

    /// Returns the variant that a word stands for.
    fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, variant)| *variant)
    }
}

/// Declares an enum together with the words of its variants.
macro_rules! word_enum {
    (
        $(#[$meta:meta])*
        pub enum $Name:ident {
            $( $(#[$variant_meta:meta])* $Variant:ident = $word:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        pub enum $Name {
            $( $(#[$variant_meta])* #[serde(rename = $word)] $Variant, )+
        }

        impl $crate::types::WordEnum for $Name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$Variant)),+];
        }

        #[cfg(feature = "cli")]
        impl schemars::JsonSchema for $Name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($Name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word),+] })
            }
        }

        impl $Name {
            /// Every variant.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$Variant),+];

            /// Returns the word for the variant.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use word_enum;
