//! What `portero dev` tells the person who started it.

use std::fmt::Write as _;
use std::path::Path;

use crate::dev_file::DevFile;
use crate::gateway::Addresses;
use crate::print;

/// Prints URLs, secrets and commands to copy.
pub(super) fn print(file: &DevFile, addresses: &Addresses, data: &Path) -> anyhow::Result<()> {
    let program = std::env::args().next().unwrap_or_else(|| "portero".to_owned());
    print::line(&text(file, addresses, data, &program))
}

fn text(file: &DevFile, addresses: &Addresses, data: &Path, program: &str) -> String {
    let mut out = String::new();
    let data_flag =
        if data == Path::new("./.portero") { String::new() } else { format!(" --data {}", data.display()) };
    let tail_flags = if data_flag.is_empty() && file.grpc_url.ends_with(":50051") {
        String::new()
    } else {
        format!(" --endpoint {} --token-file {}/consumer.token", file.grpc_url, data.display())
    };
    let sources: String = file.sources.iter().fold(String::new(), |mut lines, source| {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "  {:<8} {}{}", source.source, file.edge_url, source.ingest_path);
        let _ = writeln!(lines, "           secret {}", source.secret);
        lines
    });
    let _ = write!(
        out,
        "\nPortero is running on this machine. Everything it keeps is in {data}.\n\n\
         Webhooks  {edge}   (tenant {tenant}; these secrets are for trying out only)\n{sources}\n\
         gRPC      {grpc}   (tokens in {data}/admin.token and {data}/consumer.token)\n\
         Metrics   http://{management}/metrics\n\n\
         Try it, in another terminal:\n\n\
         \x20 {program} tail {subscription}{tail_flags}\n\
         \x20 {program} send stripe{data_flag}\n\
         \x20 {program} send github{data_flag}\n\
         \x20 {program} send stripe -n 5{data_flag}        # one event, four duplicates\n\
         \x20 {program} send stripe --ago 10m{data_flag}   # outside of the time window: 401\n\n\
         Ctrl-C stops it.\n",
        data = data.display(),
        edge = file.edge_url,
        tenant = file.tenant,
        grpc = file.grpc_url,
        management = addresses.management,
        subscription = file.subscription,
    );
    out
}
