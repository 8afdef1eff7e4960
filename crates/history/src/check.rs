//! Verifies a whole history.

use crate::error::HistoryError;
use crate::history::History;
use crate::reader::{PartReader, State};

/// What [`History::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// How many parts there are.
    pub parts: u64,
    /// How many objects the parts have together. An object counts in each part that it lived in.
    pub objects: u64,
    /// How many states were read, byte by byte.
    pub states: u64,
    /// What is damaged, with the part.
    pub damage: Vec<String>,
}

impl History {
    /// Verifies each record of each part: the structure, the checksums, and the bytes of every state.
    ///
    /// # Errors
    ///
    /// [`HistoryError`] when the folder cannot be read. Damage is no error of this call.
    pub fn check(&self) -> Result<CheckReport, HistoryError> {
        let mut report = CheckReport::default();
        for path in self.parts()? {
            report.parts += 1;
            match Self::open_part(&path) {
                Ok(Some(reader)) => check_part(reader, &mut report),
                Ok(None) => report.parts -= 1,
                Err(error) => report.damage.push(error.to_string()),
            }
        }
        Ok(report)
    }
}

fn check_part(mut reader: PartReader, report: &mut CheckReport) {
    let sound: rusqlite::Result<String> =
        reader.file.connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    match reader.file.sql(sound) {
        Ok(text) if text == "ok" => {}
        Ok(text) => report.damage.push(reader.file.damaged(text).to_string()),
        Err(error) => report.damage.push(error.to_string()),
    }
    report.damage.extend(reader.check_index().err().map(|error| error.to_string()));
    for id in 1..=reader.objects {
        report.objects += 1;
        let checked = u32::try_from(id).map_err(|_| reader.file.damaged("too many objects"));
        let checked = checked.and_then(|id| check_object(&mut reader, id));
        match checked {
            Ok(states) => report.states += states,
            Err(error) => report.damage.push(error.to_string()),
        }
    }
}

/// Reads each state of an object, and returns their number.
fn check_object(reader: &mut PartReader, id: u32) -> Result<u64, HistoryError> {
    let object = reader.object(id)?;
    let mut before: Option<State> = None;
    let mut states = 0;
    for (record, body) in reader.all_records(id)? {
        let state = reader.apply(&object, before.as_ref(), record, &body)?;
        reader.bytes(&object, &state)?;
        states += 1;
        before = Some(state);
    }
    Ok(states)
}
