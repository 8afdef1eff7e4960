//! `-o`: the list of all formats, and the options of the output.

use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use listwatch::internal::without_os_numbers;

use super::format::{
    ArgumentSource, Constructor, Format, FormatBuilder, FormatContext, FormatInfo, Needs, OutputOptions,
};
use super::json::{JSON, JSON_LINES};
use super::kind_name::KIND_NAME;
use super::list_columns::LIST_COLUMNS;
use super::list_json::LIST_JSON;
use super::list_json_path::{LIST_JSON_PATH, LIST_JSON_PATH_AS_JSON};
use super::list_yaml::LIST_YAML;
use super::name::{KEYS, NAME};
use super::yaml::YAML;
use crate::failure::Failure;

/// The formats of `watch`, in the order of the help.
const WATCH_FORMATS: &[&FormatInfo] = &[&NAME, &JSON, &YAML];

/// The formats of `get` that print objects. Its tables are the server's.
pub const GET_FORMATS: &[&FormatInfo] =
    &[&KIND_NAME, &LIST_JSON, &LIST_YAML, &LIST_COLUMNS, &LIST_JSON_PATH, &LIST_JSON_PATH_AS_JSON, &JSON_LINES, &KEYS];

/// The value of `--output`.
#[derive(Clone)]
pub struct OutputFormat {
    pub info: &'static FormatInfo,
    build: FormatBuilder,
}

/// Parses the value of `--output`.
#[derive(Clone)]
struct OutputFormatParser;

impl TypedValueParser for OutputFormatParser {
    type Value = OutputFormat;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<OutputFormat, clap::Error> {
        let text = value.to_string_lossy();
        OutputFormat::parse(&text, WATCH_FORMATS).map_err(|reason| {
            let arg = arg.map(ToString::to_string).unwrap_or_default();
            let message = format!("invalid value '{text}' for '{arg}': {reason}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(WATCH_FORMATS.iter().map(|info| PossibleValue::new(info.name).help(info.help))))
    }
}

impl OutputFormat {
    /// Parses the name of one of these formats, with its argument.
    pub fn parse(text: &str, formats: &[&'static FormatInfo]) -> Result<Self, String> {
        let (name, argument) = text.split_once('=').map_or((text, None), |(name, argument)| (name, Some(argument)));
        for info in formats.iter().copied() {
            let known = info.name.trim_end_matches('=');
            let source = match name.strip_prefix(known) {
                Some("") => ArgumentSource::CommandLine,
                Some("-file") => ArgumentSource::File,
                _ => continue,
            };
            let build: FormatBuilder = match (&info.constructor, argument, source) {
                (Constructor::Plain(build), None, ArgumentSource::CommandLine) => Arc::new(*build),
                (Constructor::Argument(parse), Some(text), ArgumentSource::CommandLine) => parse(text, source)?,
                (Constructor::Argument(parse), Some(file), ArgumentSource::File) => {
                    let text = std::fs::read_to_string(file);
                    {
                        let unreadable = |error| format!("cannot read {file}: {}", without_os_numbers(error));
                        parse(&text.map_err(unreadable)?, source)?
                    }
                }
                (Constructor::Argument(_), None, _) => return Err(format!("expected {name}=VALUE")),
                (Constructor::Plain(_), ..) => continue,
            };
            return Ok(Self { info, build });
        }
        let names: Vec<_> = formats.iter().map(|info| info.name).collect();
        Err(format!("expected one of {}", names.join(", ")))
    }

    pub fn build(&self, context: &FormatContext) -> Rc<dyn Format> {
        (self.build)(context)
    }
}

/// The options of the output of `watch`.
#[derive(Clone, clap::Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short = 'o', long = "output", value_parser = OutputFormatParser, default_value = "name", value_name = "FORMAT", help_heading = "Output")]
    format: OutputFormat,

    #[command(flatten)]
    options: OutputOptions,
}

impl OutputArgs {
    /// Refuses options that do not apply to the format.
    pub fn check(&self) -> Result<(), Failure> {
        let OutputOptions { show_managed_fields, drop, .. } = &self.options;
        for (option, is_set) in [("--drop", !drop.is_empty()), ("--show-managed-fields", *show_managed_fields)] {
            if is_set && self.needs() != Needs::Fields {
                let reason = "is for -o json and yaml: no other format prints fields";
                return Err(Failure::Usage(format!("{option} {reason}")));
            }
        }
        match drop.iter().find(|path| path.starts_with(|c: char| c.is_ascii_digit())) {
            Some(path) => Err(Failure::Usage(format!("--drop {path}: expected names of fields, not numbers"))),
            None => Ok(()),
        }
    }

    /// Returns what the format reads of the objects.
    pub fn needs(&self) -> Needs {
        self.format.info.needs
    }

    /// Returns the format for changes.
    pub fn format(&self) -> Rc<dyn Format> {
        self.format.build(&FormatContext { options: self.options.clone(), is_list: false })
    }
}
