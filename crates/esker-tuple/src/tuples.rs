//! Keys of several fields.

use crate::{Decoder, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey};

/// Implements the traits for a tuple of these types, whose forms are these.
macro_rules! tuple {
    ($($type:ident $form:ident $field:tt),*) => {
        impl<$($type: ToKey),*> ToKey for ($($type,)*) {
            fn encode(&self, out: &mut Encoder) {
                out.tuple(|out| self.encode_fields(out));
            }
            fn encode_fields(&self, _out: &mut Encoder) {
                $(self.$field.encode(_out);)*
            }
        }
        impl<$($type: TypedKey),*> TypedKey for ($($type,)*) {
            fn decode(from: &mut Decoder<'_>) -> Result<Self, KeyError> {
                from.tuple(Self::decode_fields)
            }
            fn decode_fields(_from: &mut Decoder<'_>) -> Result<Self, KeyError> {
                Ok(($($type::decode(_from)?,)*))
            }
        }
        impl<$($type, $form: KeyOf<$type>),*> KeyOf<($($type,)*)> for ($($form,)*) {}
        prefixes!([$($type $form)*] []);
    };
}

/// Implements `PrefixOf` for a tuple of these types: for each number of leading fields.
macro_rules! prefixes {
    ([] [$($type:ident $form:ident)*]) => {
        impl<$($type, $form: KeyOf<$type>),*> PrefixOf<($($type,)*)> for ($($form,)*) {}
    };
    ([$next:ident $next_form:ident $($rest:ident $rest_form:ident)*] [$($type:ident $form:ident)*]) => {
        impl<$($type, $form: KeyOf<$type>,)* $next, $($rest),*>
            PrefixOf<($($type,)* $next, $($rest,)*)> for ($($form,)*) {}
        prefixes!([$($rest $rest_form)*] [$($type $form)* $next $next_form]);
    };
}

tuple!();
tuple!(A QA 0);
tuple!(A QA 0, B QB 1);
tuple!(A QA 0, B QB 1, C QC 2);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4, F QF 5);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4, F QF 5, G QG 6);
tuple!(A QA 0, B QB 1, C QC 2, D QD 3, E QE 4, F QF 5, G QG 6, H QH 7);
