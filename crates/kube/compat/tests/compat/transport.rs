use listwatch::client::{ServiceTransport, TransportError, TransportErrorKind};

fn transport(client: kube::Client) -> ServiceTransport {
    ServiceTransport::new(move |request| {
        let client = client.clone();
        async move {
            client.send(request).await.map_err(|error| match error {
                // A failed exec plugin, for example. A list does not run it again.
                kube::Error::Service(cause) if cause.is::<kube::client::AuthError>() => {
                    TransportError::from_error(TransportErrorKind::Credentials, &*cause)
                }
                error => TransportError::from_error(TransportErrorKind::Broken, &error),
            })
        }
    })
}
