//! Counters of runs and campaigns.

/// Defines a struct of counters with their descriptions. Counters can be added and shown as a table.
#[macro_export]
macro_rules! figures {
    ($(#[$doc:meta])* $name:ident { $($count:ident: $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $text] pub $count: u64,)*
        }

        impl $name {
            /// Adds the counters of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$count = self.$count.wrapping_add(other.$count);)*
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let rows = [$(($text, self.$count)),*];
                rows.iter().try_for_each(|(text, count)| writeln!(f, "{text:<70} {count:>12}"))
            }
        }
    };
}
