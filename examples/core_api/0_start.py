"""Stage 0: a training script as everybody has one. The cluster runs it as it is."""

from tumours import Classifier, load

EPOCHS = 40


def main() -> None:
    train, validation = load()
    classifier = Classifier()
    for epoch in range(1, EPOCHS + 1):
        classifier.train_epoch(train, epoch, learning_rate=0.02)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: loss {classifier.loss(validation):.4f}", flush=True)
    print(f"accuracy on unseen tumours: {classifier.accuracy(validation):.3f}")


if __name__ == "__main__":
    main()
