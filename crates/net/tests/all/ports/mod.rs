//! Ports that servers of a test may listen at.

use tokio::net::TcpSocket;

/// Ports of a host that are kept for servers as long as this is.
///
/// Each port has a socket that listens at nothing. The system gives such a port to nobody who asks
/// for any port, and lets who asks for this one listen there.
pub struct Ports(Vec<TcpSocket>);

impl Ports {
    /// Keeps as many ports of 127.0.0.1.
    pub fn keep(count: usize) -> Self {
        let keep = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(([127, 0, 0, 1], 0).into())?;
            std::io::Result::Ok(socket)
        };
        Self((0..count).map(|_| keep().unwrap()).collect())
    }

    /// The number of a port.
    pub fn number(&self, nth: usize) -> u16 {
        self.0[nth].local_addr().unwrap().port()
    }
}
