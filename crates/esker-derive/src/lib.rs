//! `#[derive(TypedKey)]`: structs and enums as keys, or as fields of keys.
//!
//! ```text
//!   struct of fields       the tuple of its fields
//!   struct of one field    the field, if it has no name
//!   enum without fields    an integer: the discriminant
//!   any other enum         the tuple of the variant's position and its fields
//! ```
//!
//! `esker` and `esker-client` export the macro, each with the path of its own traits. A program that renames
//! the crate gives the path: `#[key(crate = "store::typed")]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{
    Data, DataEnum, DeriveInput, Error, Field, Fields, Generics, Index, Path, Token, Type, parse_quote,
};

/// Implements the trait `TypedKey` of `esker::typed` for a struct or an enum. A program that renames the
/// crate gives its path: `#[key(crate = "store::typed")]`.
#[proc_macro_derive(TypedKey, attributes(key))]
pub fn derive_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, parse_quote!(::esker::typed))
}

/// Implements the trait `TypedKey` of `esker_client::key` for a struct or an enum. A program that renames the
/// crate gives its path: `#[key(crate = "client::key")]`.
#[proc_macro_derive(ClientKey, attributes(key))]
pub fn derive_client_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derived(input, parse_quote!(::esker_client::key))
}

fn derived(input: proc_macro::TokenStream, traits: Path) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    implement(&input, traits).unwrap_or_else(Error::into_compile_error).into()
}

fn implement(input: &DeriveInput, mut traits: Path) -> syn::Result<TokenStream> {
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected `crate = \"path\"`"));
            }
            traits = meta.value()?.parse::<syn::LitStr>()?.parse()?;
            Ok(())
        })?;
    }
    let bodies = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => of_one_field(&fields.unnamed[0], &traits),
            fields => of_fields(fields, &traits),
        },
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new(Span::call_site(), "an enum without variants cannot be a key"));
        }
        Data::Enum(data) if data.variants.iter().all(|v| matches!(v.fields, Fields::Unit)) => {
            of_discriminant(data, &traits)
        }
        Data::Enum(data) => of_variants(data, &traits),
        Data::Union(_) => return Err(Error::new(Span::call_site(), "a union cannot be a key")),
    };
    let forms = match &input.data {
        Data::Struct(data) if !is_newtype(&data.fields) => tuple_forms(input, &data.fields, &traits),
        _ => TokenStream::new(),
    };
    let name = &input.ident;
    let (to_key, key) = (bounded(&input.generics, &parse_quote!(#traits::ToKey)), {
        bounded(&input.generics, &parse_quote!(#traits::TypedKey))
    });
    let (to_key, types, to_key_where) = to_key.split_for_impl();
    let (key, _, key_where) = key.split_for_impl();
    let Bodies { nullable, encode, decode } = bodies;
    Ok(quote! {
        #[automatically_derived]
        impl #to_key #traits::ToKey for #name #types #to_key_where {
            #nullable
            #encode
        }
        #[automatically_derived]
        impl #key #traits::TypedKey for #name #types #key_where {
            #decode
        }
        #[automatically_derived]
        impl #to_key #traits::KeyOf<#name #types> for #name #types #to_key_where {}
        #[automatically_derived]
        impl #to_key #traits::PrefixOf<#name #types> for #name #types #to_key_where {}
        #forms
    })
}

/// Items of the implementations.
struct Bodies {
    nullable: TokenStream,
    encode: TokenStream,
    decode: TokenStream,
}

fn is_newtype(fields: &Fields) -> bool {
    matches!(fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1)
}

/// Adds a bound to each type parameter.
fn bounded(generics: &Generics, bound: &syn::TypeParamBound) -> Generics {
    let mut generics = generics.clone();
    generics.type_params_mut().for_each(|parameter| parameter.bounds.push(bound.clone()));
    generics
}

/// A struct that is its field.
fn of_one_field(field: &Field, traits: &Path) -> Bodies {
    let of = &field.ty;
    Bodies {
        nullable: quote! { const IS_NULLABLE: bool = <#of as #traits::ToKey>::IS_NULLABLE; },
        encode: quote! {
            fn encode(&self, out: &mut #traits::Encoder) {
                #traits::ToKey::encode(&self.0, out);
            }
            fn encode_fields(&self, out: &mut #traits::Encoder) {
                #traits::ToKey::encode_fields(&self.0, out);
            }
        },
        decode: quote! {
            fn decode(from: &mut #traits::Decoder<'_>) -> ::core::result::Result<Self, #traits::KeyError> {
                #traits::TypedKey::decode(from).map(Self)
            }
            fn decode_fields(
                from: &mut #traits::Decoder<'_>,
            ) -> ::core::result::Result<Self, #traits::KeyError> {
                #traits::TypedKey::decode_fields(from).map(Self)
            }
        },
    }
}

/// A struct that is the tuple of its fields.
fn of_fields(fields: &Fields, traits: &Path) -> Bodies {
    let name = |(n, field): (usize, &Field)| match &field.ident {
        Some(name) => quote! { #name },
        None => {
            let index = Index::from(n);
            quote! { #index }
        }
    };
    let names: Vec<_> = fields.iter().enumerate().map(name).collect();
    as_tuple(
        traits,
        &quote! { #(#traits::ToKey::encode(&self.#names, out);)* },
        &quote! { ::core::result::Result::Ok(Self { #(#names: #traits::TypedKey::decode(from)?),* }) },
    )
}

/// Encodes and decodes a tuple of fields.
fn as_tuple(traits: &Path, encode: &TokenStream, decode: &TokenStream) -> Bodies {
    Bodies {
        nullable: TokenStream::new(),
        encode: quote! {
            fn encode(&self, out: &mut #traits::Encoder) {
                out.tuple(|out| #traits::ToKey::encode_fields(self, out));
            }
            #[allow(unused_variables)]
            fn encode_fields(&self, out: &mut #traits::Encoder) {
                #encode
            }
        },
        decode: quote! {
            fn decode(from: &mut #traits::Decoder<'_>) -> ::core::result::Result<Self, #traits::KeyError> {
                from.tuple(<Self as #traits::TypedKey>::decode_fields)
            }
            #[allow(unused_variables)]
            fn decode_fields(
                from: &mut #traits::Decoder<'_>,
            ) -> ::core::result::Result<Self, #traits::KeyError> {
                #decode
            }
        },
    }
}

/// An enum that is the discriminant of its variant.
fn of_discriminant(data: &DataEnum, traits: &Path) -> Bodies {
    let names: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    Bodies {
        nullable: TokenStream::new(),
        encode: quote! {
            fn encode(&self, out: &mut #traits::Encoder) {
                out.int(match self { #(Self::#names => Self::#names as i128),* });
            }
        },
        decode: quote! {
            fn decode(from: &mut #traits::Decoder<'_>) -> ::core::result::Result<Self, #traits::KeyError> {
                let discriminant = from.int()?;
                #(if discriminant == Self::#names as i128 {
                    return ::core::result::Result::Ok(Self::#names);
                })*
                ::core::result::Result::Err(#traits::KeyError::OutOfRange)
            }
        },
    }
}

/// An enum that is the tuple of its variant's position and fields.
fn of_variants(data: &DataEnum, traits: &Path) -> Bodies {
    let (mut encodes, mut decodes) = (Vec::new(), Vec::new());
    for (position, variant) in (0_u128..).zip(&data.variants) {
        let name = &variant.ident;
        let fields: Vec<_> = (0..variant.fields.len()).map(|n| format_ident!("field_{n}")).collect();
        let decoded = fields.iter().map(|_| quote! { #traits::TypedKey::decode(from)? });
        let (pattern, value) = match &variant.fields {
            Fields::Unit => (quote! { Self::#name }, quote! { Self::#name }),
            Fields::Unnamed(_) => {
                (quote! { Self::#name(#(#fields),*) }, quote! { Self::#name(#(#decoded),*) })
            }
            Fields::Named(named) => {
                let names = named.named.iter().map(|field| &field.ident);
                let again = names.clone();
                let (pattern, value) = (quote! { #(#names: #fields),* }, quote! { #(#again: #decoded),* });
                (quote! { Self::#name { #pattern } }, quote! { Self::#name { #value } })
            }
        };
        encodes.push(quote! {
            #pattern => {
                out.uint(#position);
                #(#traits::ToKey::encode(#fields, out);)*
            }
        });
        decodes.push(quote! { #position => #value, });
    }
    as_tuple(
        traits,
        &quote! { match self { #(#encodes)* } },
        &quote! {
            ::core::result::Result::Ok(match from.uint()? {
                #(#decodes)*
                _ => return ::core::result::Result::Err(#traits::KeyError::OutOfRange),
            })
        },
    )
}

/// Implementations that accept tuples of a struct's fields in its place, all of them or the first ones.
fn tuple_forms(input: &DeriveInput, fields: &Fields, traits: &Path) -> TokenStream {
    let name = &input.ident;
    let (_, types, conditions) = input.generics.split_for_impl();
    let form = |len: usize, of: Ident| {
        let forms: Vec<_> = (0..len).map(|n| format_ident!("__Q{n}")).collect();
        let fields: Vec<&Type> = fields.iter().take(len).map(|field| &field.ty).collect();
        let mut generics = bounded(&input.generics, &parse_quote!(#traits::ToKey));
        for (form, field) in forms.iter().zip(fields) {
            generics.params.push(parse_quote!(#form: #traits::KeyOf<#field>));
        }
        let parameters: &Punctuated<_, Token![,]> = &generics.params;
        quote! {
            #[automatically_derived]
            impl<#parameters> #traits::#of<#name #types> for (#(#forms,)*) #conditions {}
        }
    };
    let prefixes = (0..=fields.len()).map(|len| form(len, format_ident!("PrefixOf")));
    let whole = form(fields.len(), format_ident!("KeyOf"));
    quote! { #whole #(#prefixes)* }
}
