//! Stock of one product, sold by many requests at once under a Redis lock, with the fencing token as second line.
//!
//! `request_path redis://127.0.0.1`

use std::sync::Arc;
use std::time::Duration;

use distlock::{Acquisition, Fenced, Locks, clock};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("say which store: a URL")?;
    let locks = distlock::connect(&url).await?;
    let product = format!("stock:{}", std::process::id());
    // In a service this is a database row with a column for the token; it refuses holders that come too late.
    let stock = Arc::new(Fenced::new(10));

    let mut requests = Vec::new();
    for _ in 0..20 {
        let request = buy(locks.clone(), product.clone(), Arc::clone(&stock));
        requests.push(tokio::spawn(request));
    }
    let mut sold = 0;
    for request in requests {
        sold += u32::from(request.await??);
    }
    locks.shutdown(Duration::from_secs(5)).await?;
    let stock = Arc::into_inner(stock).ok_or("a request is not through")?;
    println!("sold {sold}, left {}", stock.into_inner());
    Ok(())
}

/// One request: takes the product's lock, reads the stock, thinks, writes. True if it got one.
async fn buy(locks: Locks, product: String, stock: Arc<Fenced<u32>>) -> Result<bool> {
    let lock = locks.lock(product)?.at_most_for(Duration::from_secs(2));
    let guard = loop {
        match lock.try_acquire().await? {
            Acquisition::Acquired(guard) => break guard,
            _ => clock::sleep(Duration::from_millis(3)).await,
        }
    };
    let token = guard.fencing_token().ok_or("this store has no fencing")?;
    let amount = *stock.enter(token)?;
    clock::sleep(Duration::from_millis(1)).await;
    let bought = amount > 0;
    if bought {
        *stock.enter(token)? = amount - 1;
    }
    guard.release().await?;
    Ok(bought)
}
