//! Every RPC: what it is called with in a place, and which action of the table that is.

use bytes::Bytes;
use portero_auth::Action;
use portero_client::v1;
use prost::Message;
use prost_types::FieldMask;
use tonic::Code;

use super::world::Place;

mod work;

pub(super) use work::settle;
use work::{grants, installation, stuck, subscriptions};

/// An id that calls create things under, and that is free again afterwards.
pub(super) const MADE: &str = "made-here";

/// One way to call an RPC.
pub(super) struct Row {
    /// `Service/Method`.
    pub(super) rpc: &'static str,
    /// What the table is asked.
    pub(super) action: fn(&Place) -> Action<'_>,
    /// What the gateway is asked. Valid, and harmless where it is allowed, or undone.
    pub(super) message: fn(&Place) -> Bytes,
    /// What an administrator of everything calls after it was done.
    pub(super) undo: fn(&Place) -> Vec<(&'static str, Bytes)>,
}

fn bytes(message: impl Message) -> Bytes {
    message.encode_to_vec().into()
}

fn row(rpc: &'static str, action: fn(&Place) -> Action<'_>, message: fn(&Place) -> Bytes) -> Row {
    Row { rpc, action, message, undo: |_| Vec::new() }
}

impl Row {
    fn undone(self, undo: fn(&Place) -> Vec<(&'static str, Bytes)>) -> Self {
        Self { undo, ..self }
    }

    /// What it is answered with where it is allowed and the place is there. Some are refused for what they would do, so that
    /// the place stays as it is.
    pub(super) fn answers(&self) -> &'static [Code] {
        match self.rpc {
            "AdminService/DeleteTenant"
            | "AdminService/DeleteSource"
            | "AdminService/DeleteSecret"
            | "AdminService/RevealSecret" => &[Code::FailedPrecondition],
            "AdminService/CreateSecret" | "AdminService/RotateSecret" | "AdminService/EraseTenant" => {
                &[Code::InvalidArgument]
            }
            // The first one takes what there is.
            "AdminService/RetireSecret"
            | "AdminService/RetryParkedEntity"
            | "AdminService/DeadLetterParkedEntity" => &[Code::Ok, Code::FailedPrecondition, Code::NotFound],
            _ => &[Code::Ok],
        }
    }

    /// Whether it makes something, so that it cannot be done twice.
    pub(super) fn makes(&self) -> bool {
        self.rpc.contains("/Create")
    }
}

fn tenant(place: &Place) -> String {
    format!("tenants/{}", place.tenant)
}

fn source(place: &Place) -> String {
    format!("tenants/{}/sources/{}", place.tenant, place.source)
}

fn secret(place: &Place, id: &str) -> String {
    format!("{}/secrets/{id}", source(place))
}

fn mask(path: &str) -> Option<FieldMask> {
    Some(FieldMask { paths: vec![path.to_owned()] })
}

pub(super) fn rows() -> Vec<Row> {
    [tenants(), sources(), secrets(), refused(), subscriptions(), stuck(), grants(), installation()]
        .into_iter()
        .flatten()
        .collect()
}

fn tenants() -> Vec<Row> {
    vec![
        row(
            "AdminService/CreateTenant",
            |_| Action::CreateTenant,
            |_| bytes(v1::CreateTenantRequest { tenant_id: MADE.to_owned(), tenant: None }),
        )
        .undone(|_| {
            let name = format!("tenants/{MADE}");
            vec![("AdminService/DeleteTenant", bytes(v1::DeleteTenantRequest { name, ..Default::default() }))]
        }),
        row(
            "AdminService/GetTenant",
            |p| Action::GetTenant(&p.tenant),
            |p| bytes(v1::GetTenantRequest { name: tenant(p) }),
        ),
        row(
            "AdminService/ListTenants",
            |_| Action::ListTenants,
            |_| bytes(v1::ListTenantsRequest::default()),
        ),
        row(
            "AdminService/UpdateTenant",
            |p| Action::UpdateTenant(&p.tenant),
            |p| {
                let tenant = Some(v1::Tenant { name: tenant(p), ..v1::Tenant::default() });
                bytes(v1::UpdateTenantRequest { tenant, update_mask: mask("display_name") })
            },
        ),
        // Refused once it is allowed: the tenant has sources.
        row(
            "AdminService/DeleteTenant",
            |p| Action::DeleteTenant(&p.tenant),
            |p| bytes(v1::DeleteTenantRequest { name: tenant(p), ..Default::default() }),
        ),
        // Not confirmed.
        row(
            "AdminService/EraseTenant",
            |p| Action::EraseTenant(&p.tenant),
            |p| bytes(v1::EraseTenantRequest { name: tenant(p), ..Default::default() }),
        ),
        row(
            "AdminService/ListPresets",
            |_| Action::ListPresets,
            |_| bytes(v1::ListPresetsRequest::default()),
        ),
        row(
            "AdminService/GetPreset",
            |_| Action::GetPreset,
            |_| bytes(v1::GetPresetRequest { name: "presets/stripe".to_owned() }),
        ),
    ]
}

fn sources() -> Vec<Row> {
    vec![
        row(
            "AdminService/CreateSource",
            |p| Action::CreateSource(&p.tenant),
            |p| {
                let verification = Some(v1::source::Verification::Preset("github".to_owned()));
                let source = Some(v1::Source { verification, ..v1::Source::default() });
                bytes(v1::CreateSourceRequest { parent: tenant(p), source_id: MADE.to_owned(), source })
            },
        )
        .undone(|p| {
            let name = format!("{}/sources/{MADE}", tenant(p));
            vec![("AdminService/DeleteSource", bytes(v1::DeleteSourceRequest { name, ..Default::default() }))]
        }),
        row(
            "AdminService/GetSource",
            |p| Action::GetSource(&p.tenant),
            |p| bytes(v1::GetSourceRequest { name: source(p) }),
        ),
        row(
            "AdminService/ListSources",
            |p| Action::ListSources(&p.tenant),
            |p| bytes(v1::ListSourcesRequest { parent: tenant(p), ..Default::default() }),
        ),
        row(
            "AdminService/UpdateSource",
            |p| Action::UpdateSource(&p.tenant),
            |p| {
                let source = Some(v1::Source { name: source(p), ..v1::Source::default() });
                bytes(v1::UpdateSourceRequest { source, update_mask: mask("public_urls") })
            },
        ),
        // Refused once it is allowed: subscriptions name it.
        row(
            "AdminService/DeleteSource",
            |p| Action::DeleteSource(&p.tenant),
            |p| bytes(v1::DeleteSourceRequest { name: source(p), ..Default::default() }),
        ),
    ]
}

fn secrets() -> Vec<Row> {
    // Refused once it is allowed.
    const SHORT: &str = "short";
    vec![
        row(
            "AdminService/CreateSecret",
            |p| Action::CreateSecret(&p.tenant),
            |p| {
                let (parent, value) = (source(p), SHORT.to_owned());
                bytes(v1::CreateSecretRequest {
                    parent,
                    secret_id: MADE.to_owned(),
                    value,
                    ..Default::default()
                })
            },
        ),
        row(
            "AdminService/RotateSecret",
            |p| Action::RotateSecret(&p.tenant),
            |p| {
                let (parent, value) = (source(p), SHORT.to_owned());
                bytes(v1::RotateSecretRequest {
                    parent,
                    secret_id: MADE.to_owned(),
                    value,
                    ..Default::default()
                })
            },
        ),
        row(
            "AdminService/RetireSecret",
            |p| Action::RetireSecret(&p.tenant),
            |p| {
                let after = prost_types::Duration { seconds: 86_400, nanos: 0 };
                let end = Some(v1::retire_secret_request::End::After(after));
                bytes(v1::RetireSecretRequest { name: secret(p, &p.spare), end, ..Default::default() })
            },
        ),
        row(
            "AdminService/RevokeSecret",
            |p| Action::RevokeSecret(&p.tenant),
            |p| bytes(v1::RevokeSecretRequest { name: secret(p, &p.spare), ..Default::default() }),
        ),
        row(
            "AdminService/GetSecret",
            |p| Action::GetSecret(&p.tenant),
            |p| bytes(v1::GetSecretRequest { name: secret(p, &p.secret) }),
        ),
        row(
            "AdminService/ListSecrets",
            |p| Action::ListSecrets(&p.tenant),
            |p| bytes(v1::ListSecretsRequest { parent: source(p), ..Default::default() }),
        ),
        row(
            "AdminService/RevealSecret",
            |p| Action::RevealSecret(&p.tenant),
            |p| bytes(v1::RevealSecretRequest { name: secret(p, &p.secret) }),
        ),
        // Refused once it is allowed: it is active.
        row(
            "AdminService/DeleteSecret",
            |p| Action::DeleteSecret(&p.tenant),
            |p| bytes(v1::DeleteSecretRequest { name: secret(p, &p.secret), ..Default::default() }),
        ),
    ]
}

fn refused() -> Vec<Row> {
    vec![
        row(
            "AdminService/ListRejections",
            |p| Action::ListRejections(&p.tenant),
            |p| bytes(v1::ListRejectionsRequest { parent: source(p), ..Default::default() }),
        ),
        row(
            "AdminService/GetRejection",
            |p| Action::GetRejection(&p.tenant),
            |p| bytes(v1::GetRejectionRequest { name: format!("{}/rejections/{}", source(p), p.rejection) }),
        ),
        row(
            "AdminService/ExplainRequest",
            |p| Action::ExplainRequest(&p.tenant),
            |p| {
                let request = Some(v1::explain_request_request::Request::RequestId(p.rejection.clone()));
                bytes(v1::ExplainRequestRequest { parent: source(p), request, at: None })
            },
        ),
        row(
            "AdminService/ExplainRequest",
            |p| Action::ExplainRequest(&p.tenant),
            |p| {
                let uploaded = v1::UploadedRequest { body: b"{}".to_vec(), ..Default::default() };
                let request = Some(v1::explain_request_request::Request::Uploaded(uploaded));
                bytes(v1::ExplainRequestRequest { parent: source(p), request, at: None })
            },
        ),
    ]
}
