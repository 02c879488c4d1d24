//! `portero send`: sign as a provider would, and post.

mod answer;
mod curl;
mod post;
mod report;
mod request;
mod target;
mod tls;

use portero_types::Clock as _;

use crate::cli::SendArgs;
use crate::clock::SystemClock;
use crate::print;

/// Signs one request and sends it, or prints it as a curl command. Succeeds when every answer was 2xx.
pub(crate) async fn run(args: SendArgs) -> anyhow::Result<()> {
    let target = target::resolve(&args)?;
    let now = SystemClock::default().now().minus(args.ago.unwrap_or_default());
    let request = request::sign(&args, &target, now)?;
    if args.curl {
        return print::raw(&curl::command(&request));
    }
    post::run(&request, &args.tls, args.count, args.output.output).await
}
