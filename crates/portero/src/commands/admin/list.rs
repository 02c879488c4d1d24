//! Lists, page by page to the end.

use portero_client::{Admin, v1};
use tonic::{Response, Status};

use crate::cli::Output;
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present::{Listing, Record};

/// A page of a list.
pub(super) trait Page {
    /// What it lists.
    type Item;
    /// Its items, and the token of the page after it (empty after the last).
    fn split(self) -> (Vec<Self::Item>, String);
}

macro_rules! page {
    ($answer:ident, $items:ident, $item:ident) => {
        impl Page for v1::$answer {
            type Item = v1::$item;
            fn split(self) -> (Vec<v1::$item>, String) {
                (self.$items, self.next_page_token)
            }
        }
    };
}

page!(ListTenantsResponse, tenants, Tenant);
page!(ListSourcesResponse, sources, Source);
page!(ListSecretsResponse, secrets, Secret);
page!(ListSubscriptionsResponse, subscriptions, Subscription);
page!(ListRejectionsResponse, rejections, Rejection);
page!(ListDeadLettersResponse, dead_letters, DeadLetter);
page!(ListParkedEntitiesResponse, parked_entities, ParkedEntity);
page!(ListAuditEntriesResponse, audit_entries, AuditEntry);
page!(ListGrantsResponse, grants, Grant);

/// Asks for page after page and shows what is on them.
pub(super) async fn show<P, R>(
    api: &AdminApi,
    output: Output,
    fetch: impl AsyncFn(Admin, String) -> Result<Response<P>, Status>,
) -> anyhow::Result<()>
where
    P: Page,
    R: Record + From<P::Item>,
{
    let mut listing = Listing::<R>::new(output);
    each(api, fetch, |item| listing.push(&R::from(item))).await?;
    listing.finish()
}

/// Asks for page after page and hands on what is on them.
pub(super) async fn each<P: Page>(
    api: &AdminApi,
    fetch: impl AsyncFn(Admin, String) -> Result<Response<P>, Status>,
    mut take: impl FnMut(P::Item) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut token = String::new();
    loop {
        let (items, next) = api.ask(fetch(api.calls(), token.clone())).await?.split();
        items.into_iter().try_for_each(&mut take)?;
        if next.is_empty() {
            return Ok(());
        }
        if next == token {
            return Err(
                Failure::failed("the gateway sent the same page twice; the list is incomplete").into()
            );
        }
        token = next;
    }
}
