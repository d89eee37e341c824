//! Stock of one product, sold by many requests at once under a Redis lock, with the fencing token as second line.
//!
//! `request_path redis://127.0.0.1`

use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::{Acquisition, FencingToken, Locks, clock};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a database row would be: it remembers the greatest fencing token and refuses smaller ones.
#[derive(Debug)]
struct Stock {
    amount: u32,
    fence: Option<FencingToken>,
}

impl Stock {
    fn write(&mut self, amount: u32, fence: Option<FencingToken>) -> Result<()> {
        if fence < self.fence {
            return Err("a later holder was here: this lock is gone".into());
        }
        (self.amount, self.fence) = (amount, fence);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("say which store: a URL")?;
    let locks = distlock::connect(&url).await?;
    let product = format!("stock:{}", std::process::id());
    let stock = Arc::new(Mutex::new(Stock {
        amount: 10,
        fence: None,
    }));

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
    let left = stock.lock().map_err(|_| "poisoned")?.amount;
    println!("sold {sold}, left {left}");
    Ok(())
}

/// One request: takes the product's lock, reads the stock, thinks, writes. True if it got one.
async fn buy(locks: Locks, product: String, stock: Arc<Mutex<Stock>>) -> Result<bool> {
    let lock = locks.lock(product)?.at_most_for(Duration::from_secs(2));
    let guard = loop {
        match lock.try_acquire().await? {
            Acquisition::Acquired(guard) => break guard,
            _ => clock::sleep(Duration::from_millis(3)).await,
        }
    };
    let amount = stock.lock().map_err(|_| "poisoned")?.amount;
    clock::sleep(Duration::from_millis(1)).await;
    let bought = amount > 0;
    if bought {
        let mut stock = stock.lock().map_err(|_| "poisoned")?;
        stock.write(amount - 1, guard.fencing_token())?;
    }
    guard.release().await?;
    Ok(bought)
}
