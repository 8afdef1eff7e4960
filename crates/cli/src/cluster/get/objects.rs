//! The objects of all targets, in a format other than a table.

use std::rc::Rc;

use listwatch::internal::chain;
use listwatch::{Encoding, ItemRef, ListMeta, TypeMeta};

use super::changes::{change_row, print_object_changes};
use super::query::Query;
use super::source::{Found, Page, Rows, Wanted};
use crate::cluster::limit::{Rest, count_surplus};
use crate::cluster::listing::print_warnings;
use crate::failure::Failure;
use crate::notices;
use crate::output::{
    EventKind, Format, FormatContext, Needs, ObjectSorter, Output, OutputFormat, OutputOptions, print_rows,
};

/// Prints the objects of all targets.
pub async fn print_objects(query: Query, format: &OutputFormat, options: OutputOptions) -> Result<(), Failure> {
    let wanted = Wanted { all_fields: format.info.needs == Needs::Fields, ..query.wanted.clone() };
    let format = format.build(&FormatContext { options, is_list: !query.is_one });
    if let Some(error) = format.usage_error() {
        return Err(Failure::Usage(error));
    }
    let mut output = Output::new(Rc::clone(&format));
    // kubectl sorts the objects of all resources as one list.
    let sort_by = query.sort_by.clone().filter(|_| !query.is_one);
    let mut sorter = sort_by.map(ObjectSorter::new);
    let wanted = Wanted { all_fields: wanted.all_fields || sorter.is_some(), ..wanted };
    let (mut count, mut missing, mut part) = (0, query.faults.clone(), None);
    for target in &query.targets {
        if target.name.is_none() {
            let listed = query.print_list(target, &wanted, &*format, &mut sorter, &mut output).await?;
            if let Some(changes) = &query.changes {
                if let Some(name) = changes.name.as_ref().filter(|_| listed.items == 0) {
                    return query.missing(name).await.map_or(Ok(()), |error| Err(Failure::Error(error)));
                }
                return print_object_changes(&query, changes, listed.version, format, output).await;
            }
            (count, part) = (count + listed.items, listed.part);
            continue;
        }
        let object = match query.source.object(target, query.subresource.as_deref()).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => {
                missing.extend(query.reported(&error));
                continue;
            }
            Err(error) => {
                output.flush()?;
                return Err(Failure::Error(error.text()));
            }
        };
        // A subresource has a kind of its own.
        let item = ItemRef::new(Encoding::Json, &object);
        let own = item.own_type_meta().map_err(|error| Failure::Error(chain(&error)))?;
        let of_target = || TypeMeta::new(target.resource.api_version(), target.resource.kind());
        let type_meta = own.filter(|own| !own.kind.is_empty()).unwrap_or_else(of_target);
        let item = item.with_type_meta(&type_meta);
        let row = match &mut sorter {
            Some(sorter) => sorter.add(&item).map(|()| None),
            None => format.row(&item),
        };
        row.map_err(|error| Failure::Error(chain(&error)))?.map_or(Ok(()), |row| output.print_row(&row))?;
        count += 1;
    }
    if let Some(sorter) = sorter {
        sorter.finish(|item| {
            let row = format.row(item).map_err(|error| Failure::Error(chain(&error)))?;
            Ok(row.map_or(Ok(()), |row| output.print_row(&row))?)
        })?;
    }
    notices::warn_of_unknown_fields(format.take_unknown_fields());
    let is_printed = if query.is_one { count > 0 } else { count > 0 || !query.ignore_not_found };
    if is_printed {
        output.end(part.as_ref().map(|(_, meta)| meta))?;
    }
    if let Some((rest, _)) = part {
        query.report(Some(0), rest);
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::Error(missing.join("; "))) }
}

/// A list that was printed.
struct Listed {
    items: u64,
    /// The version of the list.
    version: String,
    /// If `--limit` was reached: what it left out, and the metadata of a list that says so.
    part: Option<(Rest, ListMeta)>,
}

impl Query {
    /// Prints the objects of a resource.
    async fn print_list(
        &self,
        target: &Found,
        wanted: &Wanted,
        format: &dyn Format,
        sorter: &mut Option<ObjectSorter>,
        output: &mut Output,
    ) -> Result<Listed, Failure> {
        let type_meta = TypeMeta::new(target.resource.api_version(), target.resource.kind());
        let only_changes = self.changes.as_ref().is_some_and(|changes| changes.only);
        let event = self.changes.as_ref().is_some_and(|changes| changes.has_events).then_some(EventKind::Added);
        let (mut left, mut items, mut token) = (self.limit, 0, None);
        loop {
            let is_first = token.is_none();
            // One object shows the version of the list, and whether a named object exists.
            let most = if only_changes { Some(1) } else { left };
            let page = Page { size: Self::page_size(self.chunk_size, most), token: token.take() };
            let mut rows = self.source.rows(target, wanted, page, most.is_some(), |item| {
                if only_changes {
                    return Ok(None);
                }
                // The kind of a list may come after its items, and that of metadata is another.
                let has_kind = wanted.all_fields && !item.type_meta().kind.is_empty();
                let item = if has_kind { item } else { item.with_type_meta(&type_meta) };
                match sorter {
                    Some(sorter) => sorter.add(&item).map(|()| None),
                    None => change_row(format, &item, event),
                }
            });
            print_rows(&mut rows, output, &mut left, Rows::progress).await??;
            let surplus = if left == Some(0) { count_surplus(&mut rows, u64::MAX, Rows::progress).await? } else { 0 };
            let Some(summary) = rows.summary() else {
                return Ok(Listed { items, version: String::new(), part: None });
            };
            if is_first {
                print_warnings(summary);
            }
            items += summary.items;
            let ListMeta { continue_token, remaining_item_count, resource_version, .. } = &summary.list_meta;
            let version = resource_version.clone();
            if left == Some(0) {
                let rest = Rest::after(surplus, continue_token, *remaining_item_count, self.wanted.selects_all());
                return Ok(Listed { items, version, part: Some((rest, rest.list_meta(surplus, continue_token))) });
            }
            if left.is_none() || continue_token.is_empty() {
                return Ok(Listed { items, version, part: None });
            }
            token = Some(continue_token.clone());
        }
    }
}
