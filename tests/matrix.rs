//! Every call by every role: what is answered is what the table says, and whoever may not see others' things cannot tell
//! whether they are there.

mod call;
mod doors;
mod rows;
mod world;

use std::collections::BTreeSet;

use bytes::Bytes;
use portero_auth::allows;
use prost::Message as _;
use tonic::Code;

use self::call::{Answer, Line, compiled_rpcs};
use self::rows::{Row, rows};
use self::world::{Caller, Place, callers};
use crate::harness::{Admin, Gateway, Kind, Site};
use crate::kinds::on_each_store;

/// Two tenants, and one that is not there.
async fn places(gateway: &Gateway, admin: &mut Admin) -> [Place; 3] {
    [Place::make(gateway, admin, "acme").await, Place::make(gateway, admin, "evil").await, Place::nowhere()]
}

#[test]
fn every_compiled_rpc_is_called_and_asks_the_table_for_itself() {
    let called: BTreeSet<String> = rows().iter().map(|row| row.rpc.to_owned()).collect();
    assert_eq!(called, compiled_rpcs(), "each RPC needs a row in tests/matrix/rows.rs");
    let nowhere = Place::nowhere();
    for row in rows() {
        let method = row.rpc.rsplit('/').next().expect("a method");
        assert_eq!((row.action)(&nowhere).name(), method);
    }
}

on_each_store!(every_role_is_answered_as_the_table_says);

async fn every_role_is_answered_as_the_table_says(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut admin = gateway.admin().await;
    let places = places(&gateway, &mut admin).await;
    let keeper = Line::new(&gateway.grpc_url(), &site.admin_token());
    let stranger = Line::new(&gateway.grpc_url(), "");
    let callers = callers(&gateway, places.each_ref());
    for row in rows() {
        for caller in &callers {
            check_cells(&row, caller, &places, &keeper).await;
        }
        for place in &places {
            let answer = stranger.call(row.rpc, (row.message)(place)).await;
            assert_eq!(
                (answer.code, answer.reason.as_str()),
                (Code::Unauthenticated, "TOKEN_MISSING"),
                "{}",
                row.rpc
            );
        }
    }
}

/// One caller and one RPC, in each place.
async fn check_cells(row: &Row, caller: &Caller, places: &[Place; 3], keeper: &Line) {
    let mut denied: Vec<Answer> = Vec::new();
    for place in places {
        let action = (row.action)(place);
        let answer = caller.line.call(row.rpc, (row.message)(place)).await;
        let what = format!("{} in {} by {}: {answer:?}", row.rpc, place.tenant, caller.what);
        if allows(&caller.known, action) {
            assert!(expected(row, place, places).contains(&answer.code), "{what}");
            if answer.code == Code::Ok {
                undo(row, place, keeper).await;
            }
        } else {
            let reason = if caller.known.grants.is_empty() { "NO_GRANT" } else { "NOT_ALLOWED" };
            assert_eq!((answer.code, answer.reason.as_str()), (Code::PermissionDenied, reason), "{what}");
            denied.push(answer);
        }
    }
    for pair in denied.windows(2) {
        assert_eq!(pair[0], pair[1], "{} by {}: two refusals differ", row.rpc, caller.what);
    }
}

/// What an allowed call is answered with.
fn expected(row: &Row, place: &Place, places: &[Place; 3]) -> Vec<Code> {
    let says_where = (row.message)(&places[0]) != (row.message)(place);
    if place.is_there || !says_where {
        return row.answers().to_vec();
    }
    // The permission holds for whatever there may be; only now is it looked for.
    let mut codes = vec![Code::NotFound];
    codes.extend(row.answers().iter().filter(|code| **code == Code::InvalidArgument));
    codes.extend(row.rpc.contains("/List").then_some(Code::Ok));
    codes
}

async fn undo(row: &Row, place: &Place, keeper: &Line) {
    for (rpc, message) in (row.undo)(place) {
        let undone = keeper.call(rpc, message).await;
        assert_eq!(undone.code, Code::Ok, "{rpc} undoes {}: {undone:?}", row.rpc);
    }
}

on_each_store!(an_id_of_another_tenant_in_ones_own_looks_like_one_that_does_not_exist);

/// A tenant's own callers, with their tenant's name and another one's ids below it.
async fn an_id_of_another_tenant_in_ones_own_looks_like_one_that_does_not_exist(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut admin = gateway.admin().await;
    let places = places(&gateway, &mut admin).await;
    let [acme, evil, nowhere] = &places;
    let (others, missing) = (evil.of_tenant(acme), nowhere.of_tenant(acme));
    for row in rows().iter().filter(|row| !row.makes()) {
        for caller in callers(&gateway, places.each_ref()) {
            // Who reaches the other tenant may know what it has.
            if allows(&caller.known, (row.action)(evil)) {
                continue;
            }
            let of_others = caller.line.call(row.rpc, (row.message)(&others)).await;
            let of_nobody = caller.line.call(row.rpc, (row.message)(&missing)).await;
            let what = format!("{} by {}: {of_others:?} and {of_nobody:?}", row.rpc, caller.what);
            assert_eq!(of_others.without(&others.words()), of_nobody.without(&missing.words()), "{what}");
            assert_eq!(of_others.body, of_nobody.body, "{what}");
        }
    }
    // A delivery of another tenant's is nothing to one's own subscription.
    let settle = |token: &Bytes| Bytes::from(rows::settle(&acme.quiet, token.clone()).encode_to_vec());
    for caller in callers(&gateway, places.each_ref()) {
        let [of_others, of_nobody] = [&evil.delivery, &nowhere.delivery].map(settle);
        let of_others = caller.line.call("SubscriberService/Settle", of_others).await;
        let of_nobody = caller.line.call("SubscriberService/Settle", of_nobody).await;
        assert_eq!(of_others.code, of_nobody.code);
    }
}
