import '../lib/style.css';
