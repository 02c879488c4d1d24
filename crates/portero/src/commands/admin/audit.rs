//! `portero audit`.

mod entry;
mod verify;

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use portero_client::v1;

use self::entry::Entry;
use super::{list, name};
use crate::cli::{AuditCommand, Common, ConnectArgs};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present::Listing;
use crate::print;

/// Entries on a page: the most that a gateway gives.
const PAGE: i32 = 100;

/// Runs one of its commands.
pub(crate) async fn run(command: AuditCommand) -> anyhow::Result<()> {
    match command {
        AuditCommand::List { tenant, subject, action, limit, common } => {
            let wanted = v1::ListAuditEntriesRequest {
                parent: tenant.map(|tenant| name::tenant(&tenant)).unwrap_or_default(),
                subject: subject.unwrap_or_default(),
                action: action.unwrap_or_default(),
                newest_first: true,
                ..v1::ListAuditEntriesRequest::default()
            };
            show(wanted, limit, &common).await
        }
        AuditCommand::Export { file, connect } => export(file.as_deref(), &connect).await,
        AuditCommand::Verify { file, expect_seq, expect_hash, output, connect } => {
            let expected = verify::expected(expect_seq, expect_hash.as_deref())?;
            match file {
                Some(file) => verify::file(&file, expected, output.output),
                None => verify::gateway(&connect, expected, output.output).await,
            }
        }
    }
}

async fn show(mut wanted: v1::ListAuditEntriesRequest, limit: u32, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let mut listing = Listing::<Entry>::new(common.output.output);
    let mut left = limit;
    while left > 0 {
        wanted.page_size = i32::try_from(left).unwrap_or(PAGE).min(PAGE);
        let page = api.ask(api.calls().list_audit_entries(wanted.clone())).await?;
        for entry in page.audit_entries.into_iter().take(left as usize) {
            listing.push(&Entry::from(entry))?;
            left -= 1;
        }
        if page.next_page_token.is_empty() || page.next_page_token == wanted.page_token {
            break;
        }
        wanted.page_token = page.next_page_token;
    }
    listing.finish()
}

/// Asks for all entries, oldest first.
async fn all(api: &AdminApi, take: impl FnMut(v1::AuditEntry) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let page = async |mut calls: portero_client::Admin, page_token| {
        calls
            .list_audit_entries(v1::ListAuditEntriesRequest {
                page_size: PAGE,
                page_token,
                ..v1::ListAuditEntriesRequest::default()
            })
            .await
    };
    list::each(api, page, take).await
}

async fn export(file: Option<&Path>, connect: &ConnectArgs) -> anyhow::Result<()> {
    let api = AdminApi::open(connect).await?;
    let mut out = file.map(create).transpose()?;
    let mut last = None;
    all(&api, |entry| {
        let entry = Entry::from(entry);
        match &mut out {
            Some(out) => {
                writeln!(out, "{}", serde_json::to_string(&entry)?).context("the file cannot be written")?;
            }
            None => print::json(&entry)?,
        }
        last = Some((entry.seq, entry.hash));
        Ok(())
    })
    .await?;
    if let Some(out) = out {
        let file =
            out.into_inner().map_err(|error| error.into_error()).context("the file cannot be written")?;
        file.sync_all().context("the file cannot be written")?;
    }
    match last {
        Some((seq, hash)) => {
            print::note(&format!("exported entries 1 to {seq}; the last one's hash is {hash}"));
        }
        None => print::note("there are no entries"),
    }
    Ok(())
}

fn create(path: &Path) -> Result<BufWriter<std::fs::File>, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(BufWriter::new).map_err(|error| {
        Failure::usage(format!("{} cannot be made: {}", path.display(), crate::file_error::words(&error)))
    })
}
