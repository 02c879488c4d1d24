//! What strangers may call, and how much of it.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::gateway::{Gateway, patient};

/// A call of reflection: what goes there, and what comes back.
type Call = (mpsc::Sender<ServerReflectionRequest>, Streaming<ServerReflectionResponse>);

async fn connect(gateway: &Gateway) -> Channel {
    Endpoint::from_shared(gateway.endpoint.clone()).expect("an address").connect().await.expect("connected")
}

async fn reflect(channel: &Channel) -> Result<Call, Status> {
    let (to_gateway, requests) = mpsc::channel(4);
    let mut client = ServerReflectionClient::new(channel.clone());
    let answers = patient(client.server_reflection_info(ReceiverStream::new(requests))).await?;
    Ok((to_gateway, answers.into_inner()))
}

/// Whether a call of reflection that asks for the services is answered.
async fn lists(call: &mut Call) -> bool {
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let asked = ServerReflectionRequest { message_request, ..ServerReflectionRequest::default() };
    call.0.send(asked).await.is_ok() && matches!(patient(call.1.message()).await, Ok(Some(_)))
}

#[tokio::test]
async fn a_strangers_message_holds_a_name_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let channel = connect(&gateway).await;
    let mut health = HealthClient::new(channel.clone());
    let check = |name: String| HealthCheckRequest { service: name };
    assert!(patient(health.check(check("portero.v1.AdminService".to_owned()))).await.is_ok());
    let refused = patient(health.check(check("x".repeat(5_000)))).await.expect_err("refused");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let mut call = reflect(&channel).await.expect("there is room");
    assert!(lists(&mut call).await);
    let message_request = Some(MessageRequest::FileByFilename("x".repeat(5_000)));
    let large = ServerReflectionRequest { message_request, ..ServerReflectionRequest::default() };
    call.0.send(large).await.expect("open");
    let answer = patient(call.1.message()).await;
    assert!(!matches!(answer, Ok(Some(_))), "unread: {answer:?}");
    assert!(answer.err().is_none_or(|status| status.code() != Code::NotFound), "nothing was looked up");
}

#[tokio::test]
async fn reflection_has_few_callers_at_once_and_room_again_when_one_leaves() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let channel = connect(&gateway).await;
    let mut calls = Vec::new();
    let refused = loop {
        match reflect(&channel).await {
            Ok(call) if calls.len() < 60 => calls.push(call),
            Ok(_) => panic!("there is no bound"),
            Err(status) => break status,
        }
    };
    assert_eq!((refused.code(), calls.len()), (Code::ResourceExhausted, 32), "{refused}");
    assert!(lists(&mut calls[31]).await, "those that are there go on");
    drop(calls.pop());
    patient(async { while reflect(&channel).await.is_err() {} }).await;
}
