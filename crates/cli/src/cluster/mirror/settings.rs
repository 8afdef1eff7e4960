//! The file of settings of `listwatch mirror`.
//!
//! A setting has the name of an option of the command. The file becomes arguments, which precede those of the command
//! line. So clap checks both, and no option has a second definition.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{ArgAction, Command};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_saphyr::Spanned;

use crate::failure::Failure;

/// The setting with the positional arguments.
const RESOURCES: &str = "resources";

/// The largest file. A longer one is some other file.
const MAX_BYTES: u64 = 1 << 20;

/// The settings of a file, in its order.
#[derive(Default)]
struct Settings(Vec<(Spanned<String>, SettingValue)>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a setting is a text, a number, true, false, or a list")]
enum SettingValue {
    Flag(bool),
    One(Scalar),
    Many(Vec<Scalar>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an item of a list is a text or a number")]
enum Scalar {
    Number(u64),
    Text(String),
}

/// Reads the file of settings, if the command line names one, and inserts its settings as arguments.
///
/// # Errors
///
/// [`Failure::Error`] if the file cannot be read, [`Failure::Usage`] if it has no settings of this command.
pub fn add_settings(command: &Command, mut args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    // Other commands are parsed once.
    let Some(at) = args.iter().position(|arg| arg == "mirror") else { return Ok(args) };
    let matches = command.clone().ignore_errors(true).try_get_matches_from(&args).ok();
    let file =
        matches.as_ref().and_then(|matches| matches.subcommand_matches("mirror")?.get_one::<OsString>("settings"));
    let (Some(file), Some(mirror)) = (file, command.find_subcommand("mirror")) else { return Ok(args) };
    let name = if file == "-" { "stdin".into() } else { file.to_string_lossy() };
    let text = read_text(file).map_err(|error| Failure::Error(format!("cannot read {name}: {error}")))?;
    let of_file = settings_args(&text, mirror).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    // Alone first, so that the error of a value names the file.
    let alone = [OsString::from("mirror")].into_iter().chain(of_file.iter().map(OsString::from));
    match mirror.clone().try_get_matches_from(alone) {
        // An option of the command line may complete them.
        Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            return Err(Failure::Usage(format!("{name}: {}", line.strip_prefix("error: ").unwrap_or(line))));
        }
        _ => {}
    }
    args.splice(at + 1..=at, of_file.into_iter().map(OsString::from));
    Ok(args)
}

/// Reads the file; `-` is stdin.
fn read_text(file: &OsString) -> std::io::Result<String> {
    let mut text = String::new();
    let read = if file == "-" {
        std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)?
    } else {
        std::fs::File::open(Path::new(file))?.take(MAX_BYTES + 1).read_to_string(&mut text)?
    };
    if read as u64 > MAX_BYTES {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// Returns the settings as arguments of the command.
fn settings_args(text: &str, command: &Command) -> Result<Vec<String>, String> {
    let settings: Option<Settings> = serde_saphyr::from_str(text).map_err(|error| one_line(&error.to_string()))?;
    let mut args = Vec::new();
    for (name, value) in settings.unwrap_or_default().0 {
        let line = name.referenced.line();
        setting_args(&name.value, value, command, &mut args).map_err(|error| format!("line {line}: {error}"))?;
    }
    Ok(args)
}

/// Appends the arguments of one setting.
fn setting_args(name: &str, value: SettingValue, command: &Command, args: &mut Vec<String>) -> Result<(), String> {
    if name == RESOURCES {
        return resource_args(value, args);
    }
    let has_name = |arg: &&clap::Arg| arg.get_long() == Some(name) && !matches!(name, "settings" | "help" | "version");
    let Some(arg) = command.get_arguments().find(has_name) else { return Err(unknown_setting(name, command)) };
    let takes_value = arg.get_action().takes_values();
    match (value, arg.get_action()) {
        (SettingValue::Flag(is_set), ArgAction::SetTrue) => args.extend(is_set.then(|| format!("--{name}"))),
        (_, _) if !takes_value => return Err(format!("{name} is true or false")),
        (SettingValue::Flag(value), _) => return Err(format!("{name} needs a value, not {value}")),
        (SettingValue::One(value), _) => args.push(format!("--{name}={value}")),
        (SettingValue::Many(values), ArgAction::Append) => {
            args.extend(values.into_iter().map(|value| format!("--{name}={value}")));
        }
        (SettingValue::Many(_), _) => return Err(format!("{name} has one value, not a list")),
    }
    Ok(())
}

fn resource_args(value: SettingValue, args: &mut Vec<String>) -> Result<(), String> {
    let resources = match value {
        SettingValue::One(resource) => vec![resource],
        SettingValue::Many(resources) => resources,
        SettingValue::Flag(_) => return Err(format!("{RESOURCES} is a list of resource types")),
    };
    for resource in resources.iter().map(Scalar::to_string) {
        if resource.starts_with('-') {
            return Err(format!("{resource:?} is no resource type"));
        }
        args.push(resource);
    }
    Ok(())
}

/// Returns the error of a setting that the command does not have.
fn unknown_setting(name: &str, command: &Command) -> String {
    let names = command.get_arguments().filter_map(clap::Arg::get_long).chain([RESOURCES]);
    let similar = names.map(|known| (strsim::jaro_winkler(name, known), known));
    let nearest = similar.filter(|(similarity, _)| *similarity > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, nearest)) => format!("unknown setting {name:?}: did you mean {nearest:?}?"),
        None => format!("unknown setting {name:?}: settings are the options of `listwatch mirror --help`"),
    }
}

/// Shortens an error of YAML to one line. It drops the lines that the error quotes, and its advice to programmers.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    let line = line.split_once(", set DuplicateKeyPolicy").map_or(line, |(line, _)| line);
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SettingsVisitor;

        impl<'de> Visitor<'de> for SettingsVisitor {
            type Value = Settings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("settings as `name: value`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut settings = Vec::new();
                while let Some(setting) = map.next_entry()? {
                    settings.push(setting);
                }
                Ok(Settings(settings))
            }
        }

        deserializer.deserialize_map(SettingsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::cluster::mirror::MirrorArgs;

    fn args_of(text: &str) -> Result<Vec<String>, String> {
        settings_args(text, &MirrorArgs::augment_args(Command::new("mirror")))
    }

    #[test]
    fn settings_become_arguments() {
        for (text, expected) in [
            ("", &[][..]),
            ("# nothing\n", &[]),
            ("resources: pods", &["pods"]),
            ("resources: [pods, deployments.apps]", &["pods", "deployments.apps"]),
            ("budget: 2048\nlisten: 0.0.0.0:8443", &["--budget=2048", "--listen=0.0.0.0:8443"]),
            ("stale-reads: true\nall-namespaces: false", &["--stale-reads"]),
            ("index:\n- pods:spec.nodeName\n- spec.x", &["--index=pods:spec.nodeName", "--index=spec.x"]),
            ("drop: status", &["--drop=status"]),
            // Connections, too. A value that begins with a dash stays a value.
            ("context: -v\nas: \"007\"", &["--context=-v", "--as=007"]),
        ] {
            assert_eq!(
                args_of(text).as_deref(),
                Ok(&*expected.iter().map(ToString::to_string).collect::<Vec<_>>()),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_name_the_line_and_the_setting() {
        for (text, expected) in [
            ("resources: [pods]\nbudgets: 1", "line 2: unknown setting \"budgets\": did you mean \"budget\"?"),
            ("zzz: 1", "line 1: unknown setting \"zzz\": settings are the options of `listwatch mirror --help`"),
            ("help: true", "line 1: unknown setting \"help\""),
            ("settings: x", "line 1: unknown setting \"settings\""),
            ("stale-reads: 1", "line 1: stale-reads is true or false"),
            ("budget: true", "line 1: budget needs a value, not true"),
            ("\nbudget: [1, 2]", "line 2: budget has one value, not a list"),
            ("resources: [--help]", "line 1: \"--help\" is no resource type"),
            ("resources: true", "line 1: resources is a list of resource types"),
        ] {
            let error = args_of(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        // Of YAML: a text, a list, a duplicate, a map as a value, a number that is none.
        for text in ["pods", "- pods", "budget: 1\nbudget: 2", "budget: {a: 1}", "budget: 1.5", "budget:", "a: [", "\0"]
        {
            let error = args_of(text).unwrap_err();
            assert!(!error.is_empty() && !error.contains('\n'), "{text}: {error}");
        }
    }
}
