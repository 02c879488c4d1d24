//! `portero rejection`.

use portero_client::v1;
use portero_client::v1::explain_request_request::Request as Which;
use portero_types::limits::BODY_BYTES_MAX;
use serde::Serialize;

use super::{list, name};
use crate::cli::RejectionCommand;
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::explanation::View;
use crate::commands::present::{self, Record};
use crate::commands::request_file::RequestFile;
use crate::print;

/// Rejections on a page: more than are kept of a source.
const PAGE: i32 = 100;

/// Runs one of its commands.
pub(crate) async fn run(command: RejectionCommand) -> anyhow::Result<()> {
    match command {
        RejectionCommand::List { tenant, source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let parent = name::source(&tenant, &source);
            list::show::<_, Rejection>(&api, common.output.output, async |mut calls, page_token| {
                let parent = parent.clone();
                calls.list_rejections(v1::ListRejectionsRequest { parent, page_size: PAGE, page_token }).await
            })
            .await
        }
        RejectionCommand::Show { tenant, source, request, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let wanted = v1::GetRejectionRequest { name: name::rejection(&tenant, &source, &request) };
            let found =
                api.ask(api.calls().get_rejection(wanted)).await.map_err(|error| error.about(&request))?;
            present::one(common.output.output, &Rejection::from(found))
        }
        RejectionCommand::Explain { tenant, source, request, file, common } => {
            let which = match (file, request) {
                (Some(file), _) => Some(Which::Uploaded(uploaded(RequestFile::read(&file)?)?)),
                (None, request) => request.map(Which::RequestId),
            };
            let api = AdminApi::open(&common.connect).await?;
            let parent = name::source(&tenant, &source);
            let wanted = v1::ExplainRequestRequest { parent: parent.clone(), request: which, at: None };
            let explanation =
                api.ask(api.calls().explain_request(wanted)).await.map_err(|error| error.about(&parent))?;
            View::from(explanation).show(common.output.output)
        }
    }
}

/// The request of a file as it is sent to the gateway.
fn uploaded(file: RequestFile) -> Result<v1::UploadedRequest, Failure> {
    if file.body.len() > BODY_BYTES_MAX {
        return Err(Failure::usage(format!(
            "the request's body has {} bytes, and gateways explain at most {BODY_BYTES_MAX}; `portero verify` takes larger ones",
            file.body.len()
        )));
    }
    file.doubts.iter().for_each(|doubt| print::note(&format!("note: {doubt}")));
    let header = |(name, value): (String, Vec<u8>)| v1::RequestHeader { name, value };
    Ok(v1::UploadedRequest {
        method: file.method,
        query: file.query,
        headers: file.headers.into_iter().map(header).collect(),
        body: file.body,
    })
}

/// A refused request as it is shown.
#[derive(Debug, Serialize)]
struct Rejection {
    name: String,
    tenant: String,
    source: String,
    request_id: String,
    receive_time: Option<String>,
    method: String,
    reason: String,
    detail: String,
    body_bytes: u64,
    body_sha256: String,
    explainable: bool,
}

impl From<v1::Rejection> for Rejection {
    fn from(rejection: v1::Rejection) -> Self {
        Self {
            tenant: name::id(&rejection.name, 0),
            source: name::id(&rejection.name, 1),
            name: rejection.name,
            request_id: rejection.request_id,
            receive_time: present::time(rejection.receive_time.as_ref()),
            method: rejection.method,
            reason: rejection.reason,
            detail: rejection.detail,
            body_bytes: rejection.body_bytes,
            body_sha256: rejection.body_sha256,
            explainable: rejection.explainable,
        }
    }
}

impl Record for Rejection {
    const COLUMNS: &'static [&'static str] = &["REQUEST", "RECEIVED", "REASON", "BYTES", "EXPLAINABLE"];

    fn row(&self) -> Vec<String> {
        vec![
            self.request_id.clone(),
            self.receive_time.clone().unwrap_or_default(),
            self.reason.clone(),
            self.body_bytes.to_string(),
            yes_or_no(self.explainable).to_owned(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("request", self.request_id.clone()),
            ("tenant", self.tenant.clone()),
            ("source", self.source.clone()),
            ("received", self.receive_time.clone().unwrap_or_default()),
            ("method", self.method.clone()),
            ("reason", self.reason.clone()),
            ("detail", self.detail.clone()),
            ("body", format!("{} bytes", self.body_bytes)),
            ("body's SHA-256", self.body_sha256.clone()),
            ("explainable", yes_or_no(self.explainable).to_owned()),
        ]
    }
}

const fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_no_gateway_explains_is_told_with_the_limit() {
        let file = |bytes| RequestFile {
            method: "POST".to_owned(),
            query: String::new(),
            headers: Vec::new(),
            body: vec![b'a'; bytes],
            url: None,
            doubts: Vec::new(),
        };
        assert!(uploaded(file(BODY_BYTES_MAX)).is_ok());
        let refused = uploaded(file(BODY_BYTES_MAX + 1)).map(drop).expect_err("too long").to_string();
        assert!(
            refused.contains(&BODY_BYTES_MAX.to_string()) && refused.contains("portero verify"),
            "{refused}"
        );
    }

    #[test]
    fn the_json_form_is_stable() {
        let rejection = Rejection::from(v1::Rejection {
            name: "tenants/acme/sources/pay/rejections/req_1".to_owned(),
            request_id: "req_1".to_owned(),
            reason: "SIGNATURE_MISMATCH".to_owned(),
            body_bytes: 7,
            ..v1::Rejection::default()
        });
        let json = serde_json::to_value(&rejection).expect("serialises");
        let wanted = serde_json::json!({
            "name": "tenants/acme/sources/pay/rejections/req_1", "tenant": "acme", "source": "pay",
            "request_id": "req_1", "receive_time": null, "method": "", "reason": "SIGNATURE_MISMATCH", "detail": "",
            "body_bytes": 7, "body_sha256": "", "explainable": false,
        });
        assert_eq!(json, wanted);
        assert_eq!(rejection.row().len(), Rejection::COLUMNS.len());
    }
}
