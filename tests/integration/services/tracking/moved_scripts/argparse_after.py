import argparse
import math

import detlab as det


def parse():
    parser = argparse.ArgumentParser(description="Train a network")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--no-cuda", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    det.init(project="net", config=args)
    for epoch in range(1, args.epochs + 1):
        loss = math.exp(-args.lr * epoch)
        accuracy = 1 - loss / 2
        print(f"Epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.2%}")
        det.log({"loss": loss, "accuracy": accuracy}, step=epoch)
    print("done")


if __name__ == "__main__":
    main()
